"""Versions of a Delta table that have taken rows back, as its log tells of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Rollback:
    """A version of a Delta table that has taken back the rows of earlier ones.

    Attributes:
        operation: In Delta's words. With ``AS SELECT`` it may also be an overwrite, as
            ``saveAsTable`` makes it, perhaps with these rows.
        to: The restored version; None: unknown, or the table was written anew.
    """

    version: int
    operation: str
    to: int | None = None

    @property
    def is_replacement(self) -> bool:
        """Whether the log goes on with another table, which has none of the rows."""
        return self.operation.endswith(_REPLACES)

    @property
    def is_unknown(self) -> bool:
        """Whether the log does not tell which rows are there."""
        return self.to is None and not self.is_replacement

    @property
    def fate(self) -> str:
        """What became of the rows."""
        return "may be gone" if self.is_unknown else "are gone"

    def __str__(self) -> str:
        if self.is_replacement:
            return f"version {self.version} replaced the table ({self.operation})"
        if self.operation != _RESTORES:
            return f"version {self.version} wrote the table anew ({self.operation})"
        at = "a former time" if self.to is None else f"version {self.to}"
        return f"version {self.version} restored the table to {at}"


_RESTORES, _REPLACES = "RESTORE", "REPLACE TABLE"
_OVERWRITES = ("isDynamicPartitionOverwrite", "isV1SaveAsTableOverwrite")
"""Parameters of an operation that is called a replacement, and overwrites rows."""

Actions = Callable[[int], Iterable[Mapping[str, Any]]]
"""The actions of a version in Delta's log, mostly with the commit info first; empty:
its log is gone."""


def commit_info(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The commit info among a version's actions; empty: it has none, or is gone."""
    infos = (each["commitInfo"] for each in actions if "commitInfo" in each)
    return next(infos, {})


def has_txid(actions: Iterable[Mapping[str, Any]], sink: str, txid: int) -> bool:
    """Whether a version has a txid of a sink's identifier among its actions.

    Only what writes rows takes the txid of a session. The session's metadata is also in
    its other commits: ALTER TABLE, OPTIMIZE.
    """
    found = (action["txn"] for action in actions if "txn" in action)
    return any((t["appId"], int(t["version"])) == (sink, txid) for t in found)


def rolled_back_since(written: int, newest: int, actions: Actions) -> Rollback | None:
    """The version that has taken the rows of a Delta table's version ``written`` back.

    None: they are in the newest version, as far as the log says.
    """
    with_rows, last = {written}, None
    for version in range(written + 1, newest + 1):
        info = commit_info(actions(version))
        found = Rollback(version, info.get("operation") or "")
        before: int | None = version - 1
        if found.operation == _RESTORES:
            before = _restored_by(version, info, actions)
            found = replace(found, to=before)
        elif _REPLACES in found.operation and not _overwrites(info):
            before = None
        if before in with_rows:
            with_rows.add(version)
        elif version - 1 in with_rows:
            last = found
    return None if newest in with_rows else last


def _overwrites(info: Mapping[str, Any]) -> bool:
    given = info.get("operationParameters") or {}
    return any(str(given.get(name)).lower() == "true" for name in _OVERWRITES)


def _restored_by(version: int, info: Mapping[str, Any], actions: Actions) -> int | None:
    """The version that a version has restored; None: the log does not tell.

    A restore to a time has a text without its time zone. But its files are those of one
    version before: so look for the one.
    """
    to = (info.get("operationParameters") or {}).get("version")
    if to not in (None, "null"):
        return int(to)
    wanted = _changed(actions(version))
    added: set[Any] = set()
    removed: set[Any] = set()
    for before in range(version - 1, -1, -1):
        if (removed, added) == wanted:
            return before
        changes = [*actions(before)]
        if not changes:
            break
        more, less = _changed(changes)
        added, removed = (
            (added - less) | (more - removed),
            (removed - more) | (less - added),
        )
    return None


def _changed(actions: Iterable[Mapping[str, Any]]) -> tuple[set[Any], set[Any]]:
    """The data files that a version has added, and those that it has removed."""
    found: dict[str, set[Any]] = {"add": set(), "remove": set()}
    for action in actions:
        for kind in found.keys() & action.keys():
            vector = action[kind].get("deletionVector") or {}
            place = vector.get("pathOrInlineDv"), vector.get("offset")
            found[kind].add((action[kind]["path"], *place))
    return found["add"], found["remove"]
