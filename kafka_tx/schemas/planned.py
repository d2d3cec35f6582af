"""A batch that comes again under another schema than it was planned with."""

from __future__ import annotations

from collections.abc import Mapping


def other_schemas(
    planned: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """By side the names of the plan's schema and of this start's, where they differ."""
    return {
        side: (name, now[side])
        for side, name in planned.items()
        if now.get(side, name) != name
    }


def in_words(others: Mapping[str, tuple[str, str]]) -> str:
    """Which schemas differ, and what to do, for the text of an error."""
    told = "; ".join(
        f"with schema {planned} for '{side}', and this start reads with schema {now}"
        for side, (planned, now) in others.items()
    )
    options = " and ".join(_option(side, name) for side, (name, _) in others.items())
    return (
        f"the batch was planned {told}. Start once with {options}, let the batch end,"
        " then start with the newer schema"
    )


def _option(side: str, planned: str) -> str:
    if planned.isdecimal():
        return f"{side}.schema=id:{planned}"
    return f"the former text in '{side}.schema'"
