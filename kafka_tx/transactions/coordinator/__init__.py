"""The transaction coordinator: a state machine of the batches in flight."""
