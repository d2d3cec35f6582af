"""What a Store promises while its server dies and comes back."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.sizes import size
from kafka_tx.errors import StateConflictError, StateUnavailableError

STEPS = 150
WITHIN_S = 60.0


class OutageSuite:
    """``open_store()`` as in ``StoreSuite``; ``outage()`` restarts the server."""

    kills = size(1, 2)

    @pytest.fixture
    def open_store(self):
        raise NotImplementedError

    @pytest.fixture
    def outage(self):
        raise NotImplementedError

    def test_every_write_lands_once_while_the_server_is_killed(
        self, open_store, outage
    ):
        store = open_store()
        epoch = again_while_unavailable(store.acquire)

        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(count_up, store, epoch)
            for _ in range(self.kills):
                time.sleep(0.5)
                outage()
            counting.result(timeout=180)

        assert again_while_unavailable(lambda: store.get("count")) == str(STEPS)


def again_while_unavailable(step):
    """What a caller does with a retryable error."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        try:
            return step()
        except StateUnavailableError:
            time.sleep(0.1)
    return step()


def count_up(store, epoch):
    """Each step depends on the one before; after an unknown outcome it looks first."""
    for step in range(1, STEPS + 1):
        before = str(step - 1) if step > 1 else None
        while again_while_unavailable(lambda: store.get("count")) == before:
            try:
                store.write(epoch, {"count": str(step)}, expect={"count": before})
            except (StateUnavailableError, StateConflictError):
                time.sleep(0.1)
        time.sleep(0.01)
