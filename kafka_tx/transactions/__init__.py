"""Txids: what a store holds of them, who owns it, and which batch may commit."""
