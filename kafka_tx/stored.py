"""Everything that kafka_tx stores for a later run, and the number of each format.

Writers stamp what they store with ``Format.stamped`` or ``Format.number``, and readers
call ``Format.check`` before they use it. ``docs/stored.md`` shows this list.

* A new member keeps the number. Older versions ignore the member, and may write the
  record again without it: this must be harmless.
* Any other change raises the number. The version that raises it reads both formats, and
  writes the former one until a person says for each place that nobody goes back.
* Whatever is needed to find a thing never changes: paths, keys, names of tables, groups
  and files, and the member with the number. An older version would not see the thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_tx.errors import FormatError

VERSION = "0.3.0"
"""The version of this package, which ``pyproject.toml`` takes from here."""

FIRST = 3
"""The number of each format in the first release. Earlier versions wrote lower ones, or
none."""
_FIRST_RELEASE = "0.3"

_MEMBER = "v"

_LATER = (
    "A later version of kafka_tx has written it, and reads it. Nothing was changed."
    " Use that version or a later one here. Other programs of this job need it, too"
)
_EARLIER = (
    f"A version before {_FIRST_RELEASE}, the first release, has written it, and no"
    " release reads it. Nothing was changed. Start the job once more with the version"
    " that wrote it, until its last batch is committed, and stop it. `kafka-tx offsets"
    " show --json` of that version prints where it ended. Then start the job with this"
    " version, with these startingOffsets and with nothing that is stored: another"
    " tx.store, tx.id and checkpointLocation, and other names or places of its sinks"
)
_FOREIGN = (
    "No version of kafka_tx writes it: another program has, or it is damaged. Nothing"
    " was changed. Put back a copy of it, and of all that the job writes from the same"
    " time"
)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of what is stored, and its number.

    Attributes:
        name: The kind, in words of the page.
        place: Where it is stored.
        writer, reader: The parts that write and read it.
        number: The number that this version writes.
        reads: The numbers that this version reads.
    """

    name: str
    place: str
    writer: str
    reader: str
    number: int = FIRST
    reads: tuple[int, ...] = (FIRST,)

    def stamped(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The members to store: the fields, behind the number."""
        return {_MEMBER: self.number, **fields}

    def check_members(self, members: Mapping[str, Any], thing: str, **at: str) -> None:
        """As ``check``, of the result of ``stamped``."""
        self.check(members.get(_MEMBER), thing, **at)

    def check(self, found: object, thing: str, **at: str) -> None:
        """Refuse a number that this version does not read, by FormatError.

        ``thing`` is what has the number, and where; ``at`` are fields of the error.
        None: it has no number.
        """
        if type(found) is int and found > 0:
            if found in self.reads:
                return
            why = _EARLIER if found < FIRST else _LATER
        else:
            why = _EARLIER if found is None else _FOREIGN
        has = "no format number" if found is None else f"format {found!r}"
        reads = " and ".join(map(str, self.reads))
        raise FormatError(
            f"{thing} has {has}. This version of kafka_tx, {VERSION}, reads format"
            f" {reads} here, that of {_FIRST_RELEASE} and later. {why}.",
            format=found,
            reads=self.reads,
            **at,
        )


RECORDS = Format(
    "records of an id",
    "`kafka_tx_state` and `kafka_tx_offset_owners` in SQL; nodes below `<root>/<id>` in"
    " ZooKeeper",
    "source and transactional topologies; owners of at-least-once offsets; commands",
    "the same; status page and metrics",
)
SQL_OFFSETS = Format(
    "offsets at least once, in SQL",
    "`kafka_tx_offsets`, column `completed`",
    "at-least-once topologies; commands",
    "the same; status page and metrics",
)
NODES = Format(
    "offsets at least once, in ZooKeeper",
    "member `kafka_tx` of the nodes `partition_<n>`, beside Storm's members",
    "at-least-once topologies; commands",
    "the same; tools of storm-kafka read Storm's members",
)
GROUPS = Format(
    "offsets at least once, in a consumer group",
    "metadata of the group's offsets",
    "at-least-once topologies with `tx.store=kafka:`",
    "the same; other consumers read the offset",
)
SQL_SINKS = Format(
    "progress of maps and tables in SQL",
    "`kafka_tx_progress`, column `format`",
    "maps, `append_once`",
    "the same; the start of a job whose store is in the same database",
)
MARKERS = Format(
    "markers and plans of exactly-once Kafka sinks",
    "records of the marker topic; metadata of the offsets of groups"
    " `kafka_tx.<sink>.…`",
    "Kafka sinks",
    "Kafka sinks",
)
SENT_LETTERS = Format(
    "dead letters that were sent back",
    "records of the marker topic; metadata of the group's offsets",
    "`send_dead_letters`, `kafka-tx dead-letters`",
    "the same",
)
LETTERS = Format(
    "dead letters",
    "header `kafka_tx.format`, beside the other headers `kafka_tx.…`",
    "at-least-once topologies, `write_dead_letters`",
    "`send_dead_letters`, `kafka-tx dead-letters`; programs of yours",
)
PUBLICATIONS = Format(
    "publications of files",
    "lines of the files in `_kafka_tx/published`",
    "`append_files`, `clean_files`",
    "`read_files` and the same",
)
TABLES = Format(
    "attempts in Delta and Iceberg tables",
    "member `kafka_tx` of Delta's `userMetadata`; Iceberg's snapshot property"
    " `kafka_tx` and table property `kafka_tx.<sink>`",
    "`append_to_table`, `write_to_table`",
    "the same; `kafka-tx doctor`",
)
ATTEMPTS = Format(
    "attempts in sinks of yours",
    "where your sink stores the text of `attempt.as_json()`",
    "`TransactionAttempt.as_json`",
    "`TransactionAttempt.of_json`",
)
CHECKPOINTS = Format(
    "marks in Spark's checkpoints",
    "members of the offsets in `offsets/` of the checkpoint whose names begin with"
    " `_kafka_tx`",
    "source",
    "source, `attach`",
)

EVERY = (
    *(RECORDS, SQL_OFFSETS, NODES, GROUPS),
    *(CHECKPOINTS, SQL_SINKS, MARKERS, TABLES, PUBLICATIONS, ATTEMPTS),
    *(LETTERS, SENT_LETTERS),
)
"""The whole list, in the order of the page."""


def check_same_version(driver: object, what: str) -> None:
    """Refuse what a driver of another version has sent to this task: FormatError."""
    if driver == VERSION:
        return
    other = f"version {driver}" if isinstance(driver, str) else "another version"
    raise FormatError(
        f"{what} comes from a driver with {other} of kafka_tx, and this process has"
        f" version {VERSION}. What passes between driver and tasks is of one"
        " version. Nothing was read or written here. Install the driver's version for"
        " the Python of the executors (under Spark Connect: of the server), or give it"
        " by --py-files, and start again.",
        driver=other,
        task=VERSION,
    )
