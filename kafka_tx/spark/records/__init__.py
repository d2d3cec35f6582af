"""At-least-once topologies: each record fails and is replayed on its own."""
