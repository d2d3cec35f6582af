"""What is decided of logs: starts, losses, limits, splits, and what is read again."""
