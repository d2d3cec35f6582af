"""The thread of a transactional spout, as the runner asks it."""

from __future__ import annotations

from kafka_tx import OpaqueMemoryTransactionalSpout
from kafka_tx.running.transactional.spout_thread import SpoutThread


def test_a_spout_that_did_not_know_whether_it_is_drained_is_asked_again():
    """Rows that came between two questions: it was not ready, and is by then."""
    spout = OpaqueMemoryTransactionalSpout([[(1,)]], "n bigint", 4)
    thread = SpoutThread("job", spout, "spout", lambda: None)
    assert thread.is_ready(1)
    assert spout.is_drained() is None
    assert thread.is_drained(1) is False

    spout.set_lost(0)

    assert thread.is_ready(1) is False
    assert thread.is_drained(1) is True
    assert thread.close(60)
