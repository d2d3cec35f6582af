"""Tasks whose rows are tracked back to the records they come from."""
