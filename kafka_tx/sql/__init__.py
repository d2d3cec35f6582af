"""SQL: store, counted-once maps and tables. Owns sqlalchemy."""
