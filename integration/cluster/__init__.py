"""Real servers for tests and benchmarks: Kafka, ZooKeeper, PostgreSQL, Spark and more.

``provider.chosen()`` gives brokers and ZooKeepers either as local processes or in
containers, behind the same interface (``interface.py``). Whatever is started here dies
with the Python process that started it, even if that one is killed.
"""
