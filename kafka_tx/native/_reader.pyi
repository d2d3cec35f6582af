from collections.abc import Sequence

from kafka_tx.model import TopicPartition

REVISION: int
WRITER_REVISION: int
DECODER_REVISION: int

class ReadError(Exception):
    """A range could not be read.

    ``args``: kind, librdkafka's error code and its name (0 and empty where it had no
    part), next offset that was wanted, log start, log end (-1 where unknown), text.
    Kind ``stale``: the client read another range before, which may be the reason; a new
    one should read on from the next offset. Kind ``replaced``: at the log end that it
    tells is a record of a later leader epoch.
    """

    args: tuple[str, int, str, int, int, int, str]

_Failed = dict[TopicPartition, tuple[int, str]]
"""Code and text by topic and partition."""

class Client:
    """A Kafka consumer for one range after the other; closes when it is dropped."""

    def __new__(cls, *, settings: tuple[str, ...]) -> Client: ...
    def bounds(
        self, topic: str, partition: int, timeout_ms: int, /
    ) -> tuple[int, int] | None:
        """Log start and end; None where nobody tells."""

    def leaders(self, topic: str, timeout_ms: int, /) -> dict[int, int] | None:
        """Leaders by partition, -1 where there is none; None where nobody tells."""

    def learn_leaders(self, topic: str | None, timeout_ms: int, /) -> bool:
        """Let the client know who leads a topic; None: every topic.

        False where nobody tells. ``list_offsets`` needs it: see ``AdminConnection``.
        """

    def topic_id(self, topic: str, timeout_ms: int, /) -> str | None:
        """Empty where there is no such topic; None where nobody tells.

        Zeros (``AAAA…``) from brokers that know no ids.
        """

    def last_report(self) -> str:
        """What went wrong since a broker answered last; empty: nothing."""

    def list_offsets(
        self,
        questions: list[dict[TopicPartition, int]],
        is_committed: bool,
        timeout_ms: int,
        largest: int,
        /,
    ) -> list[tuple[bytes, bytes, _Failed]]:
        """Ask leaders for offsets: -1 the end, -2 the start, else as late as a time.

        All questions together, with at most ``largest`` partitions a request. For each
        question: offsets (8 bytes each) and leader epochs (4 bytes each; -1: not told)
        in the order of the question, and what failed.

        Raises:
            ReadError: ``denied``, or ``timed out`` without any answer of the client.
        """

    def describe_topics(
        self, names: tuple[str, ...], timeout_ms: int, /
    ) -> tuple[
        list[tuple[str, str | None, bytes, int, str]], dict[int, tuple[str, int]]
    ]:
        """Topics, and hosts and ports of brokers by number.

        A topic: name, id, pairs of partition and leader (4 bytes each; -1: no leader),
        code and text of an error. Zeros (``AAAA…``) from brokers that know no ids.

        Raises:
            ReadError: ``denied``, ``timed out``, or ``fetch`` for another error.
        """

class Range:
    """One range on its way. Made with its first fetch."""

    def __new__(
        cls,
        *,
        client: Client,
        topic: str,
        partition: int,
        start: int,
        end: int,
        leader_epoch: int,
        has_headers: bool,
        batch_bytes: int,
        timeout_ms: int,
        grace_ms: int,
    ) -> Range: ...
    def next(self) -> object | None:
        """The next batch as a capsule ``arrow_array``; None at the end."""

    def close(self) -> None:
        """Let the client go; harmless at any time, also twice."""

_Told = tuple[
    int, str, str, int, int, bytes | None, bytes | None, int, list[tuple[str, bytes]]
]
"""Code, text, topic, partition, time, key, value, size of both, headers."""

_Error = tuple[int, str, int, int, int]
"""Code, text, is it fatal, may one try again, must the transaction be aborted."""

class Producer:
    """A Kafka producer; its length is the number of records on their way."""

    def __new__(
        cls, *, settings: tuple[str, ...], suspect: tuple[int, ...]
    ) -> Producer: ...
    def __len__(self) -> int: ...
    def connect(self, topic: tuple[str], timeout_ms: int, /) -> None:
        """Ask for a topic, to have a connection."""

    def send(
        self,
        schema: object,
        array: object,
        topics: tuple[str, ...],
        start: int,
        wait_ms: int,
        /,
    ) -> tuple[int, int]:
        """Hand rows over: the next row, and the code with which it is refused or 0.

        Returns early where there is no room for ``wait_ms``, or news.
        """

    def produce(
        self,
        topic: tuple[str],
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
        partition: int,
        timestamp_ms: int,
        /,
    ) -> int:
        """Hand one record over; 0, or the code with which it is refused."""

    def poll(self, timeout_ms: int, /) -> int: ...
    def flush(self, timeout_ms: int, /) -> int:
        """0: nothing is on its way; or a code."""

    def purge(self) -> int:
        """Drop what is on its way."""

    def init_transactions(self, timeout_ms: int, /) -> _Error | None: ...
    def begin_transaction(self) -> _Error | None: ...
    def commit_transaction(self, timeout_ms: int, /) -> _Error | None: ...
    def abort_transaction(self, timeout_ms: int, /) -> _Error | None: ...
    def send_offset(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        metadata: str | None,
        timeout_ms: int,
        /,
    ) -> _Error | None:
        """Let an offset of a group without members be committed with the records."""

    def news(
        self,
    ) -> tuple[list[tuple[int, int, str, str]], list[_Told], list[_Told]] | None:
        """What was told since the last time, or None.

        1. Reports of the client: whether a line of the log; code or level; facility;
           text.
        2. From the first record of a batch that was refused with one of ``suspect``:
           all records that were told of, until nothing is on its way.
        3. Of the records that failed with another code, the worst: the first by name of
           the code, then the largest. Without value and headers.
        """

def check_sums(schema: object, array: object, topics: tuple[str, ...], /) -> int:
    """The sum of the check sums of rows to write; see ``sinks.sink_parts``."""

def decode_avro(
    schema: object,
    array: object,
    begins: object,
    chosen: object,
    programs: tuple[tuple[bytes, bytes], ...],
    layout: object,
    /,
) -> tuple[object, list[tuple[int, int, int]]]:
    """A capsule of the column, and row, reason and detail of rows without a value.

    ``programs`` are code and constants. Raises ValueError for what does not fit
    together, OverflowError for a slot of 2^31 bytes or items. The lock is not held.
    """

def bind(path: str, /) -> str: ...
