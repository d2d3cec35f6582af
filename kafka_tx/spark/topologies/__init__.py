"""What all topologies on Spark share."""
