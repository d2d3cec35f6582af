"""Jobs whose drivers die at named points, and what each of them must leave at its end.

A module for each kind of job; their drivers are in ``integration.pausing``, and they
are killed by ``test_crashes``.
"""
