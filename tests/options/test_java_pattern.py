"""Java's regular expressions in Python's words; ``integration`` asks Java itself."""

from __future__ import annotations

import re

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import TopicPattern
from kafka_tx.options.java_pattern import PatternError, from_java


def found(pattern, *names):
    ours = re.compile(from_java(pattern))
    return [name for name in names if ours.fullmatch(name)]


def test_an_intersection_is_computed():
    assert found("^[a-z&&[^b]]$", "a", "b", "c") == ["a", "c"]


def test_case_is_folded_before_a_complement_is_taken():
    assert found("(?i)^[a-z&&[^b]]$", "a", "b", "A", "B") == ["a", "A"]


def test_quotations_properties_and_named_groups_are_understood():
    assert found(r"^\Qa.b\E$", "a.b", "axb") == ["a.b"]
    assert found(r"^\p{Lower}+$", "abc", "aBc") == ["abc"]
    assert found(r"^(?<x>z)\k<x>$", "zz", "za") == ["zz"]


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("a(?i)b", r"\(\?i:…\)"),
        ("(?x) a", "flag x"),
        (r"\G", "no counterpart"),
        (r"\p{IsGreek}", "is not known"),
        ("[a&&]", "nothing on one side"),
        ("[[:alpha:]", "not closed"),
        ("(?<=a+)b", "look-behind"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_what_to_write(pattern, advice):
    with pytest.raises(PatternError, match=advice):
        from_java(pattern)


@pytest.mark.parametrize("pattern", ["[a-z&&[^b]]", "[[a]", "a("])
def test_a_pattern_of_pythons_own_kind_is_refused_where_python_only_warns(pattern):
    with pytest.raises(ConfigError, match="regular expression"):
        TopicPattern(pattern)
