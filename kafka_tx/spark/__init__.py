"""Spark: data source, listener, engine. Owns pyspark; only here camelCase."""
