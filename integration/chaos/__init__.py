"""A run of all doors side by side while everything around them breaks, seeded."""
