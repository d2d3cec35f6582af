"""The drop-in source: batch reads, micro-batches, transactions."""
