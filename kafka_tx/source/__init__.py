"""The source's planner: micro-batches, and the transactions they become. No Spark."""
