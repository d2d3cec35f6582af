"""Records with a schema: Avro types, resolution, decoding, and the registry."""
