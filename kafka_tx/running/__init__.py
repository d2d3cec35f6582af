"""What runs topologies and looks after queries, as far as it needs no Spark."""
