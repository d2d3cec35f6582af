"""Parses options and settings into values, from one table."""
