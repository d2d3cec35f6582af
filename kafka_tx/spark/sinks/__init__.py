"""Where results go: Kafka, maps and tables that count once."""
