"""Spark Connect: ``foreachBatch`` in a process of the server, beside the planner's."""
