"""What differs between the versions of Spark's interface for Python data sources."""
