"""Progress inside one partition: in-flight runs, retries, loss policies, ownership."""
