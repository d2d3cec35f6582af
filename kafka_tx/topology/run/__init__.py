"""One attempt of a batch: its jobs, its tasks and their messages."""
