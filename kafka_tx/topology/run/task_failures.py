"""Makes a message to the driver from an exception in a task."""

from __future__ import annotations

from pathlib import Path
from traceback import format_exception, format_tb
from types import TracebackType

from kafka_tx.errors import (
    ComponentError,
    DamagedRecordsError,
    FailedException,
    KafkaTxError,
    StateUnavailableError,
)
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.reasons import cut, text_of, text_of_failed, travels
from kafka_tx.topology.run.messages import BatchFailed, BatchStopped

_LONGEST_TRACE = 16_384
_HERE = str(Path(__file__).parent)


def failure_of(
    error: BaseException,
    attempt: TransactionAttempt,
    component: str,
    task: int,
    *,
    is_spout: bool,
) -> BatchFailed | BatchStopped:
    """Decide whether to replay or to stop, with the reason.

    A ``FailedException`` causes a replay. So does a retryable error while a spout
    reads, because brokers come back, and the loss of a map's database within a batch.
    Damaged records do not come back: replays of their batch are few, with pauses.
    Another ``KafkaTxError`` of a spout (records that are gone) stops the topology
    unchanged. Any other error stops it as a ``ComponentError``, also ``SystemExit`` and
    ``KeyboardInterrupt``: user code ends neither a thread nor a process of ours.
    """
    if isinstance(error, FailedException):
        return BatchFailed(attempt, component, task, text_of_failed(error))
    if isinstance(error, StateUnavailableError):
        return BatchFailed(attempt, component, task, text_of(error))
    if is_spout and isinstance(error, KafkaTxError):
        stops = error if isinstance(error, DamagedRecordsError) else None
        if error.retryable:
            return BatchFailed(attempt, component, task, text_of(error), stops)
        error.add_note(f"in component '{component}', task {task}, attempt {attempt}")
        return BatchStopped(attempt, error)
    return BatchStopped(attempt, component_error(error, attempt, component, task))


def component_error(
    error: BaseException, attempt: TransactionAttempt, component: str, task: int
) -> ComponentError:
    """The error that the handle raises, with component, task and user's traceback."""
    text = _trace_of(error)
    return ComponentError(
        f"component '{component}', task {task}, failed in txid {attempt.txid} (attempt"
        f" {attempt.attempt_id}): {type(error).__name__}: {text_of(error)}\n{text}",
        component=component,
        task=task,
        txid=attempt.txid,
        attempt_id=attempt.attempt_id,
        traceback=text,
        cause=error if travels(error) else None,
    )


def _trace_of(error: BaseException) -> str:
    """The traceback in users' code; only the end of a very long one."""
    try:
        lines = format_exception(type(error), error, _users_part(error.__traceback__))
    except Exception:  # noqa: BLE001 - the error cannot be shown
        lines = format_tb(_users_part(error.__traceback__))
    text = "".join(cut(line) for line in lines)
    return text if len(text) <= _LONGEST_TRACE else "…" + text[-_LONGEST_TRACE:]


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    """From the first frame that is not of this room; all of it if there is none."""
    users = frames
    while users and users.tb_frame.f_code.co_filename.startswith(_HERE):
        users = users.tb_next
    return users or frames
