"""Spark Connect: ``foreachBatch`` in a process of the server, beside the planner's."""

NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
