def test_logs_name_a_few_of_many_partitions():
    partitions = [TopicPartition("orders", n) for n in range(1_000)]

    assert few(partitions[:2]) == "orders-0, orders-1"
    assert few(partitions).endswith("orders-19 and 980 more")
    assert few([]) == "none"
