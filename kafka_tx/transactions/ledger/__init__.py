"""Numbered batches in a store: written, read, repaired, and changed by people."""
