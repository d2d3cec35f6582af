class ReadError(Exception):
    """A range could not be read.

    ``args``: kind, librdkafka's error code and its name (0 and empty where it had no
    part), next offset that was wanted, log start, log end (-1 where unknown), text.
    """

    args: tuple[str, int, str, int, int, int, str]

class Range:
    """One range on its way: a client of its own. Made with the range's first fetch."""

    def __new__(
        cls,
        *,
        topic: str,
        partition: int,
        start: int,
        end: int,
        has_headers: bool,
        batch_bytes: int,
        timeout_ms: int,
        grace_ms: int,
        settings: tuple[str, ...],
    ) -> Range: ...
    def next(self) -> object | None:
        """The next batch as a capsule ``arrow_array``; None at the end."""

    def close(self) -> None:
        """Release everything; harmless at any time, also twice."""

def bind(path: str, /) -> str: ...
