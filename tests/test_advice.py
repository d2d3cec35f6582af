"""Every error that says what to do has a test that does it, to the letter."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.advice_followers import FOLLOWED, NOTHING_AT_RISK
from tests.advice_places import WAYS_OUT, places

ROOT = Path(__file__).parents[1]


def test_every_place_that_says_what_to_do_is_known():
    known = {*FOLLOWED, *NOTHING_AT_RISK}

    assert not set(places()) - known, "name who follows it, or why nobody need"
    assert not known - set(places()), "gone from the source"
    assert not FOLLOWED.keys() & NOTHING_AT_RISK.keys()


def test_every_named_test_exists():
    named = {test for tests in FOLLOWED.values() for test in tests}

    assert not [test for test in sorted(named) if not _exists(test)]


def test_a_new_way_out_is_noticed(tmp_path):
    text = "raise KafkaError('no. Start with a new checkpointLocation.')"
    (tmp_path / "new.py").write_text(
        f"def told():\n    {text}\ndef config():\n    return 'or set tx.store right'\n"
        "def quiet():\n    return 'tx.store'\n"
        "class Row:\n    of: str = row('id', 'Put back tx.store.')\n    at = 'tx.id'\n"
    )

    assert set(places(tmp_path)) == {"new::told", "new::config", "new::Row.of"}
    assert all(
        any(way in text for way in WAYS_OUT) for text in places(tmp_path).values()
    )


def _exists(test: str) -> bool:
    path, _, wanted = test.partition("::")
    file = ROOT / path
    if not file.is_file():
        return False
    found = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return any(isinstance(n, ast.FunctionDef) and n.name == wanted for n in found)
