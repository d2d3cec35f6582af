"""What all sinks share: which attempt may write, and what a sink remembers."""
