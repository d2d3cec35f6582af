"""The source's planner: micro-batches and their transactions, without Spark."""
