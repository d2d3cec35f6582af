"""What the store of an id holds: paths of its records, and their text forms."""
