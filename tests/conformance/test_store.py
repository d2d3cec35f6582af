import itertools

import pytest

from kafka_tx.sql.store import SqlStore
from kafka_tx.transactions.ownership.memory import MemoryStore
from tests.conformance.store_suite import StoreSuite

names = itertools.count()


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def open_store(self):
        name = f"conformance-{next(names)}"
        return lambda id_="orders": MemoryStore(name, id_)


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def open_store(self, tmp_path):
        opened = []

        def open_one(id_="orders"):
            opened.append(SqlStore(f"sqlite:///{tmp_path}/state.db", id_))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()
