"""Every error kafka_tx raises.

KafkaTxError
├── ConfigError (a ValueError, too), DataLossError, OffsetsError
├── SchemaError, RecordFormatError
├── RegistryError *
│   └── RegistryDeniedError
├── StateError
│   ├── StateUnavailableError *, StateGivenUpError, StateLostError
│   ├── StateConflictError, StateCorruptedError, CheckpointDisagreesError
│   ├── BatchIdsAgainError, OtherTopicsError, FormatError
│   └── FencedError
│       └── OwnerLivesError
├── KafkaError
│   ├── BrokerUnavailableError *, FetchError *, GroupOccupiedError *, UnknownTopicError
│   │   └── DamagedRecordsError * (a FetchError)
│   └── AuthenticationError, DeliveryError
│       └── WriteDeniedError (both)
├── OffsetOutOfRangeError
│   └── OtherTopicError
└── TransactionError
    ├── OutOfOrderError, AnotherNumberingError, ReplayImpossibleError
    └── ReplayDiffersError, FailedException, ComponentError

``*`` = ``retryable`` is true. Every error carries an ``error_class`` (the first word of
its text, in brackets, as Spark prints its own) and crosses process borders: an error is
rebuilt from its fields when it is unpickled.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

_CAUSE: Any = vars(BaseException)["__cause__"]


class KafkaTxError(Exception):
    """The root of all errors of kafka_tx.

    A subclass names its fields as keyword arguments of ``__init__`` and passes them on;
    they become attributes and survive pickling.
    """

    error_class: str = "KAFKA_TX_ERROR"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: object) -> None:
        self.message = message
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(message)

    def __str__(self) -> str:
        return f"[{self.error_class}] {self.message}"

    keeps_cause: bool = False
    """Set where an error leaves for Spark: its workers remove the cause of an error,
    and with it the text that ``errors_first`` puts first."""

    @property
    def __cause__(self) -> BaseException | None:
        found: BaseException | None = _CAUSE.__get__(self)
        return found

    @__cause__.setter
    def __cause__(self, cause: BaseException | None) -> None:
        if cause is not None or not self.keeps_cause:
            _CAUSE.__set__(self, cause)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.fields, self.__dict__))


def _rebuild(
    kind: type[KafkaTxError],
    message: str,
    fields: dict[str, object],
    state: dict[str, Any],
) -> KafkaTxError:
    error = kind.__new__(kind)
    KafkaTxError.__init__(error, message, **fields)
    error.__dict__.update(state)
    return error


class ConfigError(KafkaTxError, ValueError):
    """An option is missing, unknown or has an illegal value."""

    error_class = "KAFKA_TX_CONFIG"

    @classmethod
    def illegal(
        cls, option: str, value: object, legal: str, advice: str = ""
    ) -> ConfigError:
        """Name the option, its value, the legal values and the next step."""
        text = f"option '{option}' is {value!r}; legal: {legal}."
        return cls(f"{text} {advice}".strip(), option=option, value=value)


def harmless(text: object) -> object:
    """A refused text, to be shown; hidden if it may hold a password.

    A database's address does, in any form: ``dialect://user:…``, ``password=…``.
    """
    is_address = isinstance(text, str) and re.search(r"[@=]|://", text)
    return "***" if is_address else text


class DataLossError(KafkaTxError):
    """Records that a job still needed are no longer in Kafka.

    ``error_class`` is one of Spark's ``KAFKA_DATA_LOSS.…`` names, given per instance.
    ``advice`` is the next step for the job that needed them; empty: for a query.
    """

    error_class = "KAFKA_DATA_LOSS"

    def __init__(
        self, subclass: str, reason: str, advice: str = "", **fields: object
    ) -> None:
        advice = advice or (
            "If you don't want your streaming query to fail on such cases, set the"
            " source option failOnDataLoss to false."
        )
        super().__init__(
            "Some data may have been lost because they are not available in Kafka any"
            " more; either the data was aged out by Kafka or the topic may have been"
            " deleted before all the data in the topic was processed."
            f" {advice} Reason: {reason}",
            **fields,
        )
        self.error_class = f"KAFKA_DATA_LOSS.{subclass}"


class OffsetsError(KafkaTxError):
    """Offsets contradict each other or the topic; ``error_class`` is Spark's name."""

    error_class = "KAFKA_TX_OFFSETS"

    def __init__(self, error_class: str, message: str, **fields: object) -> None:
        super().__init__(message, **fields)
        self.error_class = error_class


class SchemaError(KafkaTxError):
    """A schema is none, is refused by name, or cannot be resolved with another.

    Field ``rule``, if it is refused for a rule of the registry: the rule's name.
    """

    error_class = "KAFKA_TX_SCHEMA"


class RecordFormatError(KafkaTxError):
    """A record is not what its format says, and ``value.mode`` is ``FAILFAST``.

    Fields: ``topic``, ``partition``, ``offset``, ``schema_id`` and ``reason``.
    """

    error_class = "KAFKA_TX_RECORD_FORMAT"


class RegistryError(KafkaTxError):
    """The schema registry did not answer; the same request may succeed later."""

    error_class = "KAFKA_TX_REGISTRY"
    retryable = True


class RegistryDeniedError(RegistryError):
    """The schema registry refused the credentials, or a right is missing."""

    error_class = "KAFKA_TX_REGISTRY_DENIED"
    retryable = False


class StateError(KafkaTxError):
    """Something is wrong with the durable state of an id."""

    error_class = "KAFKA_TX_STATE"


class StateUnavailableError(StateError):
    """The store does not answer; the same call may succeed later."""

    error_class = "KAFKA_TX_STATE_UNAVAILABLE"
    retryable = True


class StateGivenUpError(StateError):
    """The store stayed unavailable until the retries ended (two minutes)."""

    error_class = "KAFKA_TX_STATE_GIVEN_UP"


class FencedError(StateError):
    """A newer owner of the same id wrote its epoch; this one must stop."""

    error_class = "KAFKA_TX_FENCED"


class OwnerLivesError(FencedError):
    """The owner of the id is at work; this run has not taken over, and must stop."""

    error_class = "KAFKA_TX_OWNER_LIVES"


class StateLostError(StateError):
    """The store lost what this process wrote: it was restored, or is another store."""

    error_class = "KAFKA_TX_STATE_LOST"


class StateConflictError(StateError):
    """A record changed between reading and writing; read again, then decide again."""

    error_class = "KAFKA_TX_STATE_CONFLICT"


class StateCorruptedError(StateError):
    """A record of the store cannot be read. Nothing is guessed in its place."""

    error_class = "KAFKA_TX_STATE_CORRUPTED"


class CheckpointDisagreesError(StateError):
    """Spark's checkpoint and the store of the same ``tx.id`` contradict each other."""

    error_class = "KAFKA_TX_CHECKPOINT_DISAGREES"


class BatchIdsAgainError(StateError):
    """Spark's batch ids start again, and the sink may remember the former ones."""

    error_class = "KAFKA_TX_BATCH_IDS_AGAIN"


class OtherTopicsError(StateError):
    """A run does not read the topics that its id has read, or has planned to read.

    Fields: ``id``, ``store`` and ``topics``, those of the id.
    """

    error_class = "KAFKA_TX_OTHER_TOPICS"


class FormatError(StateError):
    """Something is stored in a format that this version does not read.

    Another version or another program has written it. Also: driver and task have
    different versions. Fields: ``format`` and ``reads``, or ``driver`` and ``task``.
    """

    error_class = "KAFKA_TX_FORMAT"


class KafkaError(KafkaTxError):
    """A broker refused a request, or a client could not make one."""

    error_class = "KAFKA_TX_KAFKA"


class BrokerUnavailableError(KafkaError):
    """No broker answered within the time-out."""

    error_class = "KAFKA_TX_BROKER_UNAVAILABLE"
    retryable = True


class GroupOccupiedError(KafkaError):
    """A consumer is a member of a group whose offsets are written from outside."""

    error_class = "KAFKA_TX_GROUP_OCCUPIED"
    retryable = True


class AuthenticationError(KafkaError):
    """The broker refused the credentials, the permission is missing, or TLS failed."""

    error_class = "KAFKA_TX_AUTHENTICATION"


class UnknownTopicError(KafkaError):
    """A topic or partition that was named does not exist."""

    error_class = "KAFKA_TX_UNKNOWN_TOPIC"


class FetchError(KafkaError):
    """A range of a partition could not be read within the time-out."""

    error_class = "KAFKA_TX_FETCH"
    retryable = True


class DamagedRecordsError(FetchError):
    """Records are damaged where brokers keep them, or cannot be decoded.

    Another try may find a good copy. ``position``: the first offset that cannot be
    read. ``next_offset``: the first one above that can; None: not known.
    """

    error_class = "KAFKA_TX_DAMAGED_RECORDS"
    topic: str
    partition: int
    position: int
    next_offset: int | None
    topic_id: str | None


class DeliveryError(KafkaError):
    """A record could not be written.

    ``size``: bytes of key and value. ``retryable`` is true if brokers were unavailable.
    ``is_own``: this client has refused the record, for the sizes that it is set to.
    """

    error_class = "KAFKA_TX_DELIVERY"
    topic: str
    key: bytes | None
    size: int
    code: str
    is_own: bool = False


class WriteDeniedError(AuthenticationError, DeliveryError):
    """A record was refused: the user may not write to its topic."""


class OffsetOutOfRangeError(KafkaTxError):
    """The wanted offset is below the log start or above the log end.

    Fields: ``topic``, ``partition``, ``wanted``, ``log_start``, ``log_end``.
    """

    error_class = "KAFKA_TX_OFFSET_OUT_OF_RANGE"


class OtherTopicError(OffsetOutOfRangeError):
    """A range was read from a topic that was recreated since it was planned.

    Fields: those of its base, with empty bounds, ``planned_id`` and ``found_id``.
    """

    error_class = "KAFKA_TX_OTHER_TOPIC"


class TransactionError(KafkaTxError):
    """A rule of transactions would be broken."""

    error_class = "KAFKA_TX_TRANSACTION"


class OutOfOrderError(TransactionError):
    """A txid was requested out of order."""

    error_class = "KAFKA_TX_OUT_OF_ORDER"


class AnotherNumberingError(TransactionError):
    """A sink counts the txids of another numbering than the attempt's.

    Fields: ``id`` (the sink in words), ``txid``, ``numbering``, ``stored_numbering``.
    """

    error_class = "KAFKA_TX_ANOTHER_NUMBERING"


class ReplayImpossibleError(TransactionError):
    """A transactional batch must be replayed and some of its records are gone.

    Fields: ``txid``, ``topic``, ``partition``, ``wanted`` and ``available`` (ranges).
    """

    error_class = "KAFKA_TX_REPLAY_IMPOSSIBLE"


class ReplayDiffersError(TransactionError):
    """A replay holds other rows than those that were written for its txid.

    Fields: ``id``, ``txid``, ``part``.
    """

    error_class = "KAFKA_TX_REPLAY_DIFFERS"


class FailedException(TransactionError):  # noqa: N818 - the name Storm's users know
    """Raise it in a bolt or committer: the batch is replayed, the topology goes on."""

    error_class = "KAFKA_TX_FAILED"

    def __init__(
        self, message: str = "the batch asked to be replayed", **fields: object
    ) -> None:
        super().__init__(message, **fields)


class ComponentError(TransactionError):
    """A spout or bolt of a topology raised an error that a replay does not repair.

    ``traceback`` has the user's own frames. ``cause`` is the error itself if it is one
    of this tree; another may not be picklable.
    """

    error_class = "KAFKA_TX_COMPONENT"
    component: str
    task: int
    txid: int
    attempt_id: int
    traceback: str
    cause: KafkaTxError | None
