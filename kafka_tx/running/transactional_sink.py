"""The base class of sinks that count each batch once, for other people's sinks, too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from kafka_tx.clock import SystemClock
from kafka_tx.config import check_attempt, check_kind
from kafka_tx.errors import StateUnavailableError
from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.table_writes import (
    NEVER,
    Commit,
    OvertakenError,
    SinkTable,
    record_commit,
    write_batch,
)
from kafka_tx.transactions.ownership.retry_policy import DEFAULT_MS, RetryPolicy


class TransactionalSink(ABC):
    """Counts each batch once in any storage that has an atomic step.

    You say how the storage is read and written. The class decides whether an attempt
    may write, and raises the errors of all sinks. Call the sink with a batch and its
    attempt: in ``for_each_transaction(sink)``, in a function that you give to
    ``for_each_transaction``, or in ``finish_batch`` of a committer.

    A call does this, in the process that makes it:

    1. ``read_attempt``: is the txid written, is a newer owner or another numbering
       there? A replay of a written txid ends here.
    2. ``stage``, if you have one: tasks write their parts under the attempt's name.
    3. After ``stage``: ``read_attempt`` again. If it has changed, go back to 1.
    4. ``write``: one atomic step.
    5. ``read_attempt`` again: it shows whether the step took effect. So a step whose
       answer was lost is not repeated.

    Errors of the classes in ``unavailable`` repeat all steps, for ``retry_ms`` at most.
    """

    name: str
    """Names the sink in errors and in ``kafka-tx status``: one name for one storage.
    Set it in ``__init__``."""
    location: str = ""
    """Address of the storage, for ``kafka-tx doctor``; it reads folders of files."""
    takes_back: ClassVar[bool] = False
    """Whether ``write`` replaces the rows of an earlier attempt at the same txid in its
    atomic step. Only such a sink takes batches of ``tx.mode=opaque``."""
    unavailable: ClassVar[tuple[type[Exception], ...]] = (ConnectionError, TimeoutError)
    """Errors of yours after which a later try may succeed."""
    retry_ms: ClassVar[int] = DEFAULT_MS
    """From the first such error to the last try, in ms; 0: no retry."""

    apart: ClassVar[tuple[str, str]] = (
        "name",
        "give the second write a sink of its own",
    )
    """The argument that names the sink, and the advice for two writes of a batch."""

    @abstractmethod
    def read_attempt(self) -> TransactionAttempt | None:
        """The attempt that ``write`` has stored last; None: there is none.

        It must see each step of ``write`` that has taken effect, also those of other
        processes: read from where ``write`` writes, never from a replica or a cache.
        """

    def stage(self, rows: Any, attempt: TransactionAttempt) -> Any:  # noqa: ANN401, ARG002
        """Prepare the batch where no reader sees it; the result is given to ``write``.

        For large batches: tasks write their parts under ``str(attempt)``. It may be
        called again for the same attempt, and ``write`` may never follow: then what was
        prepared is left over.
        """
        return rows

    @abstractmethod
    def write(
        self,
        staged: Any,  # noqa: ANN401
        attempt: TransactionAttempt,
        former: TransactionAttempt | None,
    ) -> None:
        """Store the rows and the attempt in one atomic step.

        All of it takes effect, or nothing does, whenever the process dies. Store
        ``attempt.as_json()``, and read it with ``TransactionAttempt.of_json``. A batch
        may have no rows: its attempt is stored, too.

        Args:
            staged: The result of ``stage``; without a ``stage`` the rows of the call.
            attempt: To be stored.
            former: The result of the last ``read_attempt``. If ``takes_back`` is set
                and ``former`` has the txid of ``attempt``, replace its rows.

        Raises:
            OvertakenError: The stored attempt is not ``former`` any more, and nothing
                was written. Compare inside the atomic step: otherwise two processes
                that write at once may both write. Steps 1 to 5 are repeated.
            Exception: Anything else; ``read_attempt`` shows whether it took effect.
        """

    def __call__(self, rows: Any, attempt: TransactionAttempt) -> bool:  # noqa: ANN401
        """Write a batch, once.

        Args:
            rows: The batch, as ``stage`` or ``write`` takes it.
            attempt: Of the batch. A sink takes one write of each.

        Returns:
            False if the txid was there already, and nothing was written.

        Raises:
            ConfigError: The attempt is opaque and the sink does not take back, or this
                attempt was written by an earlier call.
            OutOfOrderError: A later txid is stored.
            FencedError: A newer owner has written; for a sink that takes back, also a
                later attempt of the txid.
            AnotherNumberingError: The sink counts the txids of another numbering.
            ReplayDiffersError: The txid is there from other records.
            StateLostError: The sink does not hold what this process has written.
            StateGivenUpError: The storage was unavailable for ``retry_ms``, or others
                were faster at each of ten tries.
            Exception: What ``read_attempt``, ``stage`` and ``write`` raise.
        """
        check_attempt(attempt)
        check_kind("name", getattr(self, "name", None), str, "the name of the sink")
        batch = _Batch(self, rows)

        def once() -> bool | None:
            return write_batch(
                batch,
                attempt,
                is_opaque=self.takes_back,
                is_again=batch.has_tried,
                apart=self.apart,
            )

        clock = SystemClock()
        set_by = "Set retry_ms of the sink"
        began_ms = clock.monotonic_ms()
        is_new = RetryPolicy(clock, self.retry_ms, set_by)(once)
        record_write(batch, attempt, clock.monotonic_ms() - began_ms, is_new=is_new)
        return bool(is_new)


def record_write(
    table: SinkTable, attempt: TransactionAttempt, took_ms: int, *, is_new: bool | None
) -> None:
    """Record a write for people; ``is_new`` is the answer of ``write_batch``."""
    if is_new is not None:
        record_commit(table, attempt, took_ms / 1000 if is_new else None)


class _Batch:
    """One call of a sink, as ``write_batch`` sees it."""

    def __init__(self, sink: TransactionalSink, rows: Any) -> None:  # noqa: ANN401
        self._sink, self._rows = sink, rows
        self._former: TransactionAttempt | None = None
        self.sink = (sink.name, type(sink).__name__)
        self.what = f"sink '{sink.name}'"
        self.has_tried = False

    def stored(self, _: TransactionAttempt) -> TransactionAttempt:
        with self._waiting():
            self._former = self._sink.read_attempt()
        return self._former or NEVER

    def commit(self) -> Commit:
        return Commit(location=self._sink.location)

    def check_stored(self, _: TransactionAttempt) -> None:
        """Nothing: it is in the sink only with its rows."""

    def has_rows(self) -> bool:
        """A batch without rows is stored, too."""
        return True

    def write(self, attempt: TransactionAttempt) -> bool:
        with self._waiting():
            before, sink = self._former, self._sink
            staged = sink.stage(self._rows, attempt)
            if type(sink).stage is not TransactionalSink.stage:
                now = self.stored(attempt)
                if now != (before or NEVER):
                    raise OvertakenError(f"attempt {now} came first")
            self.has_tried = True
            sink.write(staged, attempt, self._former)
        return True

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        try:
            yield
        except self._sink.unavailable as error:
            raise StateUnavailableError(
                f"{self.what} cannot be used: {error or type(error).__name__}",
                store=self.what,
            ) from error
