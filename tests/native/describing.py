"""Describe topics of a real broker in native code, for sanitizers: the mock cannot.

Arguments: addresses and names. Prints the number of partitions of each topic, -1 for
one that cannot be described.
"""

from __future__ import annotations

import sys

from kafka_tx.native.library import client
from tests.native.conftest import pytest_configure


def main() -> None:
    pytest_configure()
    addresses, *names = sys.argv[1:]
    asked = client({"bootstrap.servers": addresses})
    assert asked is not None
    answers = [asked.describe_topics(tuple(names), 10_000) for _ in range(20)]
    topics, brokers = answers[-1]
    assert brokers
    sizes = {name: -1 if code else len(p) // 8 for name, _, p, code, _ in topics}
    print(*(sizes[name] for name in names))


if __name__ == "__main__":
    main()
