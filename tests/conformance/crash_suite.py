"""What a Store promises when its process is killed. A subclass gives ``store_url``."""

import random
import subprocess
import sys
import time

import pytest

from integration.sizes import size
from kafka_tx.assembly import open_store

PATHS = [f"user/orders-{number}" for number in range(40)]

WRITER = """
import sys
from kafka_tx.assembly import open_store
from kafka_tx.errors import StateUnavailableError

store = open_store(sys.argv[1], "crash")
epoch = store.acquire()
print("acquired", epoch, flush=True)
number = 0
while True:
    number += 1
    stamp = f"{epoch}.{number}"
    put = {path: stamp * int(sys.argv[2]) for path in sys.argv[3:]}
    put["last"] = stamp
    put[f"meta/{number}"] = stamp
    delete = list(store.read("meta/"))
    store.write(epoch, put, delete)
    if number == 1:
        print("wrote", stamp, flush=True)
"""


class CrashSuite:
    """``store_url`` names a store that other processes can open too."""

    kills = size(3, 8)
    wait_s = 0.4
    """A kill comes at a random moment of this span, after the first write."""
    repeat = 50
    """Every value is its stamp so many times."""

    @pytest.fixture
    def store_url(self):
        raise NotImplementedError

    def test_a_killed_writer_leaves_no_half_write(self, store_url):
        moments = random.Random(7)
        for _ in range(self.kills):
            writer, first = self.start_writer(store_url)
            time.sleep(moments.uniform(0, self.wait_s))
            writer.kill()
            writer.communicate(timeout=300)

            store = open_store(store_url, "crash")
            found = store.read()
            store.close()

            last = found.pop("last")
            assert found == {
                **dict.fromkeys(PATHS, last * self.repeat),
                f"meta/{last.split('.')[1]}": last,
            }
            assert order(last) >= order(first)

    def test_a_new_owner_in_another_process_stops_the_writer(self, store_url):
        writer, _ = self.start_writer(store_url)

        store = open_store(store_url, "crash")
        epoch = store.acquire()
        store.write(epoch, {"mine": "1"})
        _, complaint = writer.communicate(timeout=300)

        assert writer.returncode == 1
        assert "KAFKA_TX_FENCED" in complaint
        assert order(store.get("last")) < (epoch, 0)
        assert store.get("mine") == "1"
        store.close()

    def start_writer(self, store_url):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, store_url, str(self.repeat), *PATHS],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout is not None
        lines = [writer.stdout.readline().split() for _ in ("acquired", "wrote")]
        assert lines[-1], writer.communicate()
        return writer, lines[-1][-1]


def order(stamp):
    epoch, _, number = stamp.partition(".")
    return int(epoch), int(number)
