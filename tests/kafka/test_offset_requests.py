"""How many questions the leaders of many partitions are asked."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_tx.kafka.admin import AdminConnection, Deadline
from kafka_tx.kafka.offset_requests import Reported, list_offsets
from kafka_tx.model import Earliest, Latest, TopicPartition


class CountingClient:
    """An admin client whose every partition ends at its own number."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def list_offsets(self, asked: dict[Any, Any], **_: object) -> dict[Any, Any]:
        self.sizes.append(len(asked))
        return {partition: _answered(partition.partition) for partition in asked}


def _answered(offset: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(SimpleNamespace(offset=offset, leader_epoch=3))
    return future


@pytest.mark.parametrize(("partitions", "requests"), [(1, 1), (500, 1), (5_000, 10)])
def test_a_question_takes_a_request_for_every_500_partitions(
    monkeypatch: pytest.MonkeyPatch, partitions: int, requests: int
) -> None:
    client = CountingClient()
    monkeypatch.setattr(AdminConnection, "client", client)
    asked = [TopicPartition("orders", number) for number in range(partitions)]

    starts, ends = list_offsets(
        AdminConnection({"bootstrap.servers": "nowhere:1"}),
        [dict.fromkeys(asked, Earliest()), dict.fromkeys(asked, Latest())],
        Deadline(1_000),
        committed=False,
    )

    assert starts == ends == {tp: Reported(tp.partition, 3) for tp in asked}
    assert len(client.sizes) == 2 * requests
    assert sum(client.sizes) == 2 * partitions
