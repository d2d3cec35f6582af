"""Txids: which batch may be processed or may commit, and which records to store."""
