"""Pauses Python's cycle collector while many objects are made without cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the cycle collector. Also a decorator.

    The collector scans all living objects again and again. Without a pause this takes
    a fifth of the time of decoding records, and half of a request for 5,000 partitions.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
