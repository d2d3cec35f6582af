"""Txids: which batch may be processed, which may commit, what must be stored."""
