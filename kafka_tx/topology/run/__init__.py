"""One attempt of a batch: its jobs, its tasks and what they tell each other."""
