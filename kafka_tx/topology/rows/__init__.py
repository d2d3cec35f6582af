"""The form of data: rows, blocks of them, fields and their types, hashes."""
