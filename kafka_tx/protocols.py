"""The protocols between rooms.

Implementations never inherit from these; a conformance suite in ``tests/conformance``
runs against all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kafka_tx.model import (
    CommittedOffset,
    LogBounds,
    OffsetRange,
    Position,
    Retention,
    Subscription,
    TopicDescription,
    TopicPartition,
    Unavailable,
)

if TYPE_CHECKING:  # it takes long, and not everybody reads records
    import pyarrow as pa

Survey: TypeAlias = tuple[
    dict[str, TopicDescription], dict[TopicPartition, LogBounds | Unavailable]
]
"""Topics by name, and the bounds of partitions."""

Texts: TypeAlias = Mapping[str, str]
"""Values by path."""

NOTHING: Texts = MappingProxyType({})

Paths: TypeAlias = Iterable[str]

Expected: TypeAlias = Mapping[str, str | None] | None
"""Values that paths must still have, None: absent; None: nothing is expected."""


class Clock(Protocol):
    """The clock that the edges give to the core."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the Unix epoch; may jump either way."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some point; never goes backwards."""

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait so long, at the edges only."""


class StateAtPlace(Protocol):
    """The state of one id at one place, as error texts name it."""

    @property
    def url(self) -> str:
        """The address, without secrets."""

    @property
    def id(self) -> str:
        """The id."""


class Store(Protocol):
    """The small durable state of one id: a flat map from path to text.

    Paths are relative, ``/`` separated, without leading or trailing slash, of the
    characters ``A-Z a-z 0-9 . _ - = /``. Values are text. Writes are atomic and fenced:
    the store keeps an epoch for the id; a write with an older epoch changes nothing.
    Safe to use from several threads. Never pickled: each process opens its own.

    All methods raise the state errors of ``acquire``.
    """

    @property
    def url(self) -> str:
        """The address, without secrets: for texts and for commands people run."""

    @property
    def id(self) -> str:
        """Whose state this is."""

    @property
    def retry_ms(self) -> int:
        """How long jobs retry while the store is unavailable; 0: they do not retry."""

    def acquire(
        self, put: Texts = NOTHING, *, above: int = 0, expect: Expected = None
    ) -> int:
        """Become the owner: raise the stored epoch by one and return it (first 1).

        One atomic step with the writing of ``put``, if ``expect`` holds, as of
        ``write``. The new epoch is greater than ``above``, too.

        Raises:
            ConfigError: A path or value that no store can hold.
            StateConflictError: A path of ``expect`` has another value; no owner was
                fenced.
            StateUnavailableError: The store does not answer, or is locked; unknown
                whether it landed.
            StateCorruptedError: The record of the owner, or the store, is damaged.
            StateError: The store refuses (permissions, read-only, wrong address).
        """

    def epoch(self) -> int:
        """The stored epoch now; 0 when the id was never acquired."""

    def read(self, prefix: str = "") -> dict[str, str]:
        """Every path that begins with ``prefix`` and its value, in path order.

        A consistent snapshot where the store can give one. An id without state: ``{}``.
        """

    def get(self, path: str) -> str | None:
        """One value, or None when the path does not exist."""

    def write(
        self, epoch: int, put: Texts, delete: Paths = (), *, expect: Expected = None
    ) -> None:
        """Set and delete all these paths in one atomic step, if ``epoch`` is current.

        ``expect`` names paths and the values they must still have (None: absent); an
        owner that writes from two processes keeps them from crossing with it. Deleting
        a missing path is no error; a path that is both put and deleted is put. On any
        error nothing was changed, except that a StateUnavailableError leaves it open
        whether the write arrived: writes are therefore made so that doing them twice is
        harmless.

        Raises, beside the errors of ``acquire``:
            FencedError: The stored epoch is another than ``epoch``.
        """

    def sinks(self, numbering: str) -> dict[str, int]:
        """Sinks in the same database that count this numbering; their last txid."""

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class OffsetStore(Protocol):
    """Committed offsets of one consumer, one record for each partition.

    All methods that ask the store raise StateUnavailableError (it does not answer) and
    StateError (it refuses).
    """

    @property
    def url(self) -> str:
        """The address, without secrets."""

    @property
    def retry_ms(self) -> int:
        """How long a topology retries while the store is unavailable."""

    def renew_ms(self) -> int | None:
        """How often to write all offsets again, as they expire; None: they do not."""

    def fitting(self, committed: CommittedOffset) -> int:
        """Number of the lowest runs beyond the offset that the store has room for.

        If some do not fit, the spout emits nothing new on that partition.
        """

    def acquire(self, task: int = 0, tasks: int = 1) -> int:
        """Become the owner of one of the tasks that share the offsets.

        From then on former owners of that task can store no more, nor can those that
        count another number of tasks. An object that acquired nothing is a tool's: it
        stores unchecked.

        Returns:
            The owner's epoch, from 1; 0 from a store that cannot fence anyone.

        Raises:
            StateCorruptedError: The record of the owners cannot be read.
        """

    def topics(self) -> frozenset[str]:
        """The topics of all stored records; none where a store cannot list them."""

    def load(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, CommittedOffset]:
        """The stored records; partitions without one are left out.

        Raises:
            StateCorruptedError: A record exists and cannot be read.
        """

    def store(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Write all of them at once; other partitions keep theirs.

        None of them: an owner only asks whether the store is still its own. After a
        StateUnavailableError it is unknown whether the write arrived.

        Raises:
            FencedError: Another owner came; nothing was written.
            StateLostError: The store is not where this owner left it.
        """

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class ClusterView(Protocol):
    """Topics, leaders and offsets as the cluster reports them.

    Requests are batched: the cost grows with the number of brokers, not of partitions.
    All methods raise what ``topics`` raises.
    """

    def topics(self, wanted: Subscription) -> dict[str, TopicDescription]:
        """The topics that exist now, by name; absent ones are left out.

        Raises:
            BrokerUnavailableError: No broker answered in time; names the addresses.
            AuthenticationError: Credentials, permission or TLS.
            ConfigError: A pattern or a setting cannot be used.
            KafkaError: A broker answered with another error.
        """

    def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Log start and end of every asked partition, or why it cannot be had now.

        A partition whose topic was recreated meanwhile is ``Unavailable``.
        """

    def survey(
        self, wanted: Subscription, partitions: Collection[TopicPartition]
    ) -> Survey:
        """As ``topics``, and ``bounds`` of their partitions, in fewer requests."""

    def topic_ids(self, names: Iterable[str]) -> dict[str, str | None]:
        """Ids of topics that are asked for by name; None: the topic does not exist.

        A topic whose id no broker reports is left out: it is hidden from the user, or
        only brokers answer that know no ids.
        """

    def offsets(
        self, wanted: Mapping[TopicPartition, Position]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Resolve positions to next offsets; None where no record matches a time."""

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int | None]]:
        """Where logs end, with the epochs of the leaders that reported it.

        An epoch is None if the leader reports none. Partitions whose leader does not
        answer are left out. An answer is never changed, and may come again.
        """

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Where leader epochs ended in the logs as their leaders have them now.

        What follows there was written under later epochs. Partitions whose leader does
        not answer are left out. The epochs of ``wanted`` are older than those of the
        leaders.
        """

    def retentions(self, names: Iterable[str]) -> Mapping[str, Retention]:
        """What limits the logs of topics; without topics whose settings are hidden."""

    def close(self) -> None:
        """Release connections. Calling it twice is harmless."""


class RangeReader(Protocol):
    """Reads exactly one range into Arrow record batches (runs on executors)."""

    def read(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the readable records of the range in offset order.

        Of a range with a ``topic_id`` the brokers are asked which topic it was, after
        the last fetch: no read of another topic ends without an error. Records of a
        range that is not small may have been given by then.

        Of a range with a ``leader_epoch`` no record of a later one is given: a new
        leader has it in place of what was planned.

        Ends when the *position* has reached ``wanted.end``: holes (compaction, control
        records, aborted transactions) are fine. Closing the iterator early releases
        everything.

        Raises:
            OffsetOutOfRangeError: The range begins below the log start or lies beyond
                the log end; or its log was cut and continued since it was planned:
                ``log_end`` is where.
            OtherTopicError: The topic was recreated since the range was planned.
            FetchError: No progress within the time-out, or no broker reported the
                topic's id, or what the log holds of a range that it lacks.
            DamagedRecordsError: Records arrive, and cannot be decoded; those before
                were given.
            AuthenticationError: Credentials, permission or TLS.
        """


class Meter(Protocol):
    """Where measurements go. Never raises: a failing metric never fails a batch."""

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter of the catalogue."""

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge of the catalogue."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Record one value in a histogram of the catalogue."""
