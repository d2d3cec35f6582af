"""Reads the state of a sink from the files of a Delta or Iceberg table, without Spark.

The store of a source knows where its tables are. Their logs are read as files, from
wherever ``pyarrow`` can read: local disks, HDFS, S3, Google Cloud Storage.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from kafka_tx.model import TransactionAttempt
from kafka_tx.sinks.delta_rollbacks import (
    Rollback,
    commit_info,
    has_txid,
    rolled_back_since,
)
from kafka_tx.sinks.publications import PUBLISHED, Name
from kafka_tx.sinks.table_writes import (
    KEY,
    NEVER,
    RETENTION,
    Floor,
    Snapshot,
    attempt_in,
    floor_in,
    last_written,
    record_in,
)
from kafka_tx.transactions.layout.commit_stats import TableWrite

Verdict = Literal["good", "unknown", "advice", "bad"]
"""``unknown`` means that the check has no result; it is no failure."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet")
_FORMER = 100
"""Files of metadata that Iceberg keeps by default."""
_METADATA = re.compile(r"v?(\d+)(?:-[^.]+)?(\.gz)?\.metadata\.json(\.gz)?")


def inspect_table(
    write: TableWrite, numbering: str, committed: int
) -> tuple[Verdict, str]:
    """Whether a table still has the last batch number of a sink.

    ``write`` is the last one that the store knows of, ``numbering`` and ``committed``
    are those of the store.
    """
    if not write.location:
        return "unknown", f"{_named(write)}: the store does not say where it is"
    try:
        folder = _Folder(write.location)
        if folder.names("_delta_log"):
            return _of_delta(_delta(folder), write, numbering, committed)
        if folder.names("metadata"):
            return _of_iceberg(_iceberg(folder), write, numbering)
        if published := folder.names(PUBLISHED):
            return _of_files(published, write)
    except (OSError, ValueError, LookupError, ImportError) as error:
        why = str(error).partition("\n")[0]
        return "unknown", (
            f"{_named(write)}: {write.location} cannot be read from here: {why}."
            " Run doctor where the table's files can be read"
        )
    return "bad", (
        f"{_named(write)}: {write.location} holds no table. If it was dropped, the job"
        " makes a new one, which gets the unfinished batch and all later ones"
    )


def _of_files(published: list[str], write: TableWrite) -> tuple[Verdict, str]:
    last = max((n.txid for n in map(Name.of, published) if n is not None), default=0)
    if last >= write.txid:
        return "good", f"{_named(write)} has txid {last}"
    return "advice", (
        f"{_named(write)} has txid {last or 'none'}, and the store says that txid"
        f" {write.txid} was written: the folder was replaced by an older copy. The rows"
        " of the txids between stay out"
    )


def _named(write: TableWrite) -> str:
    return f"{write.table} (sink '{write.sink}')"


class _Folder:
    def __init__(self, location: str) -> None:
        from pyarrow import fs

        local = re.sub(r"^file:/+", "/", location)
        if local.startswith("/"):
            self._files, self._root = fs.LocalFileSystem(), local
        else:
            uri = re.sub(r"^s3[an]:", "s3:", location)
            self._files, self._root = fs.FileSystem.from_uri(uri)

    def names(self, folder: str) -> list[str]:
        """The files of a folder, ascending; empty if the folder does not exist."""
        from pyarrow import fs

        place = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        found = self._files.get_file_info(place)
        return sorted(each.base_name for each in found if each.is_file)

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.read())

    def actions(self, version: int) -> list[dict[str, Any]]:
        """The commit of a version of a Delta table."""
        lines = self.read(f"_delta_log/{version:020}.json").splitlines()
        return [json.loads(line) for line in lines]

    def rows(self, name: str, columns: list[str]) -> list[dict[str, Any]]:
        from pyarrow import parquet

        with self._files.open_input_file(f"{self._root}/{name}") as file:
            found: list[dict[str, Any]] = parquet.read_table(
                file, columns=columns
            ).to_pylist()
            return found


# --- Delta ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Delta:
    """The available part of a table's log.

    The last txids are by the sink's identifier; the actions with a txid, and the commit
    infos, by version.
    """

    folder: _Folder
    settings: Mapping[str, str] = field(default_factory=dict)
    txids: dict[str, int] = field(default_factory=dict)
    txns: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    infos: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def actions(self, version: int) -> Iterator[Mapping[str, Any]]:
        """The rest is read again, which is seldom needed."""
        if version in self.infos:
            yield {"commitInfo": self.infos[version]}
            yield from self.folder.actions(version)


def _delta(folder: _Folder) -> _Delta:
    found, names = _Delta(folder), folder.names("_delta_log")
    checkpoints = [(m[1], name) for name in names if (m := _CHECKPOINT.fullmatch(name))]
    whole = list(groupby(checkpoints, key=lambda each: each[0]))
    newest = max((int(version) for version, _ in whole), default=-1)
    for version, name in checkpoints:
        if int(version) == newest:
            rows = folder.rows(f"_delta_log/{name}", ["txn", "metaData"])
            _take(found, rows, follows=True)
    for name in names:
        if (match := _COMMIT.fullmatch(name)) is not None:
            version = int(match[1])
            actions = folder.actions(version)
            _take(found, actions, follows=version > newest)
            found.infos[version] = commit_info(actions)
            found.txns[version] = [each for each in actions if "txn" in each]
    return found


def _take(found: _Delta, actions: list[dict[str, Any]], *, follows: bool) -> None:
    for action in actions if follows else ():
        if (txn := action.get("txn")) is not None:
            found.txids[txn["appId"]] = int(txn["version"])
        if (metadata := action.get("metaData")) is not None:
            found.settings = dict(metadata.get("configuration") or {})


def _of_delta(
    found: _Delta, write: TableWrite, numbering: str, committed: int
) -> tuple[Verdict, str]:
    named = _named(write)
    if kept := found.settings.get(RETENTION):
        return "bad", (
            f"{named} forgets transactions after {kept}, so that sinks refuse it."
            f" ALTER TABLE … UNSET TBLPROPERTIES ('{RETENTION}')"
        )
    txid = found.txids.get(f"kafka_tx.{write.sink}.{numbering}")
    if txid is None or txid < write.txid:
        return "bad", _is_another(write, _origin(found), txid)
    version, rollback = _rolled_back(found, write.sink, numbering, txid)
    if rollback is not None:
        gone = (
            f"{named}: {rollback}. The rows of txid {txid}, in version {version},"
            f" {rollback.fate}"
        )
        if txid <= committed:
            return "advice", (
                f"{gone}, as are those of earlier txids that it has removed. They stay"
                " out. Later batches are written"
            )
        return "bad", (
            f"{gone}. Delta still counts it, so that the job refuses to replay this"
            " batch. Its error names the ways on"
        )
    at = "" if version is None else f" in version {version}"
    return "good", f"{named} has txid {txid}{at}"


def _is_another(write: TableWrite, origin: str, txid: int | None) -> str:
    has = "has no txid of this sink" if txid is None else f"has only txid {txid}"
    return (
        f"{_named(write)} {has}, and the store says that txid {write.txid} was written."
        f" {origin or 'The table is a copy, or was made anew'}, and the job would write"
        " an unfinished batch a second time. Put the job's own table back before you"
        " start the job, if it holds that batch"
    )


def _origin(found: _Delta) -> str:
    for version, info in sorted(found.infos.items()):
        if info.get("operation") == "CLONE":
            return f"Version {version} made it as a clone, which has no txids"
    return ""


def _rolled_back(
    found: _Delta, sink: str, numbering: str, txid: int
) -> tuple[int | None, Rollback | None]:
    """The version of a txid, and the one that has taken its rows back."""
    identifier = f"{KEY}.{sink}.{numbering}"
    versions = [
        v for v in sorted(found.txns) if has_txid(found.txns[v], identifier, txid)
    ]
    if not versions:
        return None, None
    rollback = rolled_back_since(versions[-1], max(found.infos), found.actions)
    return versions[-1], rollback


# --- Iceberg --------------------------------------------------------------------------


def _iceberg(folder: _Folder) -> dict[str, Any]:
    """The newest metadata of a table, with the expired snapshots of former metadata."""
    found = sorted(
        (int(match[1]), name)
        for name in folder.names("metadata")
        if (match := _METADATA.fullmatch(name))
    )
    if not found:
        raise ValueError("its folder metadata holds no metadata.json")
    metadata: dict[str, Any] = {}
    snapshots: dict[int, Any] = {}
    for _, name in found[-_FORMER:]:
        text = folder.read(f"metadata/{name}")
        metadata = json.loads(gzip.decompress(text) if ".gz" in name else text)
        for each in metadata.get("snapshots", ()):
            snapshots[each["snapshot-id"]] = each
    return metadata | {"snapshots": [*snapshots.values()]}


def _snapshots(metadata: Mapping[str, Any], sink: str) -> Iterator[Snapshot]:
    known = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}
    at = known.get(metadata.get("current-snapshot-id"))
    while at is not None:
        record = record_in(at.get("summary", {}).get(KEY))
        parent = at.get("parent-snapshot-id")
        order = at.get("sequence-number", 0), at["timestamp-ms"]
        yield Snapshot(at["snapshot-id"], parent, order, attempt_in(record, sink))
        at = known.get(parent)


def _of_iceberg(
    metadata: Mapping[str, Any], write: TableWrite, numbering: str
) -> tuple[Verdict, str]:
    named = _named(write)
    floor = floor_in(
        metadata.get("properties", {}).get(f"{KEY}.{write.sink}"), write.sink
    )
    last = last_written(_snapshots(metadata, write.sink), floor)
    if last.numbering not in ("", numbering):
        return "bad", (
            f"{named} counts the txids of numbering {last.numbering}, and the store"
            f" those of {numbering}: the job refuses to write. The table or the store"
            " is another one"
        )
    if last.txid < write.txid:
        return _behind(write, last, floor)
    return "good", f"{named} has txid {last.txid}"


def _behind(
    write: TableWrite, last: TransactionAttempt, floor: Floor | None
) -> tuple[Verdict, str]:
    if last != NEVER or floor is not None:
        return "advice", (
            f"{_named(write)} has txid {last.txid or 'none'} in its present version,"
            f" and the store says that txid {write.txid} was written: the table was"
            " rolled back, or replaced by a copy. The rows of the txids between"
            " stay out"
        )
    return "bad", _is_another(write, "", None)
