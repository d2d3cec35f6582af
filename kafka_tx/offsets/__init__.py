"""Progress inside one partition: pending runs, retries, start rules, ownership."""
