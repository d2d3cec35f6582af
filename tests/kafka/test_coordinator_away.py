"""The admin client's request for it would end this process (see ``group_commits``)."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes, os, threading, time

from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka.client_settings import client_settings
from kafka_tx.kafka.mirror import GroupMirror
from kafka_tx.model import LogPosition, TopicPartition
from kafka_tx.testing.mock import MockCluster

OFFSET_COMMIT, TRANSPORT = 8, -195
stored = []

def write(settings):
    while True:
        mirror = GroupMirror(settings, "g", timeout_ms=1_000)
        for offset in range(20):
            try:
                mirror.store({TopicPartition("t", 0): LogPosition(offset, None)})
                stored.append(offset)
            except KafkaTxError:
                pass
        mirror.close()

with MockCluster() as cluster:
    cluster.create_topic("t")
    given = {"bootstrap.servers": cluster.bootstrap_servers}
    settings = client_settings(given, purpose="admin")
    for _ in range(8):
        threading.Thread(target=write, args=(settings,), daemon=True).start()
    until = time.monotonic() + 4
    while time.monotonic() < until:
        cluster.stop_broker()
        time.sleep(0.05)
        cluster.start_broker()
        for _ in range(10):
            cluster._library.rd_kafka_mock_push_request_errors(
                ctypes.c_void_p(cluster._cluster), OFFSET_COMMIT, 1, TRANSPORT
            )
            time.sleep(0.02)
    while not stored:  # it stays there now
        time.sleep(0.02)
    print("stored", len(stored), flush=True)
    os._exit(0)
"""


def test_a_coordinator_that_comes_and_goes_does_not_end_the_process() -> None:
    asked = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 0
