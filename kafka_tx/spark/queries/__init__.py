"""What looks after running queries: commits, metrics, ``foreachBatch``."""
