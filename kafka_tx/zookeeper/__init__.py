"""ZooKeeper: store and broker registry. Owns kazoo."""
