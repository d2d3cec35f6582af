from __future__ import annotations

import pytest

from kafka_tx.errors import KafkaTxError
from kafka_tx.testing.mock import Feed, MockCluster


def test_what_the_brokers_confirmed_is_counted_by_value():
    with MockCluster() as cluster:
        cluster.create_topic("words", 2)
        feed = Feed({"bootstrap.servers": cluster.bootstrap_servers}, "words", 2)

        for word in ("a", "b", "a"):
            feed.send(word)
        feed.flush()

        assert feed.confirmed == 3
        assert feed.counts() == {"a": 2, "b": 1}


def test_a_refused_record_is_an_error_and_not_counted():
    with MockCluster() as cluster:
        cluster.create_topic("words", 1)
        feed = Feed({"bootstrap.servers": cluster.bootstrap_servers}, "words", 2)
        feed.send("a")
        feed.flush()

        with pytest.raises(KafkaTxError, match="topic 'words'"):
            feed.send("b")  # for partition 1, which does not exist

        assert feed.counts() == {"a": 1}
