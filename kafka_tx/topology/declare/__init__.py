"""Declarations of users: spouts, bolts and groupings, and the graph made of them."""
