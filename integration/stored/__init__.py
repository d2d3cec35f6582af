"""What a version stores: made in the states that matter, compared, and gone on with.

``python -m integration.stored`` makes the set of this version in ``tests/stored``.
"""
