REVISION: int

class ReadError(Exception):
    """A range could not be read.

    ``args``: kind, librdkafka's error code and its name (0 and empty where it had no
    part), next offset that was wanted, log start, log end (-1 where unknown), text.
    Kind ``stale``: the client read another range before, which may be the reason; a new
    one should read on from the next offset.
    """

    args: tuple[str, int, str, int, int, int, str]

class Client:
    """A Kafka consumer for one range after the other; closes when it is dropped."""

    def __new__(cls, *, settings: tuple[str, ...]) -> Client: ...
    def bounds(
        self, topic: str, partition: int, timeout_ms: int, /
    ) -> tuple[int, int] | None:
        """Log start and end; None where nobody tells."""

    def leaders(self, topic: str, timeout_ms: int, /) -> dict[int, int] | None:
        """Leaders by partition, -1 where there is none; None where nobody tells."""

    def topic_id(self, topic: str, timeout_ms: int, /) -> str | None:
        """Empty where there is no such topic; None where nobody tells.

        Zeros (``AAAA…``) from brokers that know no ids.
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
        has_headers: bool,
        batch_bytes: int,
        timeout_ms: int,
        grace_ms: int,
    ) -> Range: ...
    def next(self) -> object | None:
        """The next batch as a capsule ``arrow_array``; None at the end."""

    def close(self) -> None:
        """Let the client go; harmless at any time, also twice."""

def bind(path: str, /) -> str: ...
