"""At-least-once topologies on Spark: each record fails and is replayed on its own."""
