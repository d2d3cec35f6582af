"""For running queries: commits, metrics and ``foreachBatch``."""
