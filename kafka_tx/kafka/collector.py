"""Pauses Python's cycle collector while many objects are made without cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cycle collector, which scans all living objects. Also a decorator.

    It would take a fifth of the time of decoding records, and half of a request for
    5,000 partitions.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
