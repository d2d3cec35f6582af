"""What is told to the registry."""

import pytest

from kafka_tx import errors
from kafka_tx.errors import (
    AuthenticationError,
    ConfigError,
    DataLossError,
    FailedException,
    FencedError,
    OffsetOutOfRangeError,
    OffsetsError,
    ReplayDiffersError,
    ReplayImpossibleError,
    StateCorruptedError,
)
from kafka_tx.metrics.catalogue import STOP_REASON
from kafka_tx.metrics.events import stop_reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FencedError("x"), "fenced"),
        (StateCorruptedError("x"), "state"),
        (AuthenticationError("x"), "kafka"),
        (DataLossError("START_OFFSET_RESET", "x"), "data_loss"),
        (OffsetOutOfRangeError("x"), "data_loss"),
        (ReplayImpossibleError("x"), "replay_impossible"),
        (ReplayDiffersError("x"), "replay_differs"),
        (OffsetsError("X", "x"), "config"),
        (ConfigError("x"), "config"),
        (FailedException(), "user"),
        (ZeroDivisionError(), "user"),
        (KeyboardInterrupt(), "user"),
    ],
)
def test_a_stop_is_named_by_what_ended_it(error: BaseException, reason: str) -> None:
    assert stop_reason(error) == reason


def test_every_error_class_has_a_reason_of_the_closed_set() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.KafkaTxError)
    ]

    reasons = {stop_reason(kind.__new__(kind)) for kind in kinds}

    assert reasons == set(STOP_REASON.values)
