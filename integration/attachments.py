"""What a program attaches to a session of the tests ends with the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

import kafka_tx


@contextmanager
def closed_attachments(**given: Any) -> Iterator[None]:
    """Close at the end what ``kafka_tx.attach`` has made, as a process would.

    Else it would watch the queries of all later tests of this worker, too, and log and
    count what it sees a second time.

    Args:
        given: Arguments of ``attach`` that win over those of the program.
    """
    real = kafka_tx.attach
    with ExitStack() as made, pytest.MonkeyPatch.context() as patch:

        def attach(session: Any, **asked: Any) -> Any:
            return made.enter_context(closing(real(session, **(asked | given))))

        patch.setattr(kafka_tx, "attach", attach)
        yield
