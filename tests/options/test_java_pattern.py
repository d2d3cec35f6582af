"""Java's regular expressions in Python's words; ``integration`` asks Java itself."""

from __future__ import annotations

import re

import pytest

from kafka_tx.errors import ConfigError
from kafka_tx.model import TopicPattern
from kafka_tx.options.source import PatternError, from_java


def found(pattern, *names):
    ours = re.compile(from_java(pattern))
    return [name for name in names if ours.fullmatch(name)]


def test_quotations_properties_and_named_groups_are_understood():
    assert found(r"^\Qa.b\E$", "a.b", "axb") == ["a.b"]
    assert found(r"^\p{Lower}+$", "abc", "aBc") == ["abc"]
    assert found(r"^(?<x>z)\k<x>$", "zz", "za") == ["zz"]


@pytest.mark.parametrize(
    ("pattern", "advice"),
    [
        ("a(?i)b", "not at the start"),
        ("(?x) a", "flag x"),
        ("b(?x:a)", "flag x"),
        (r"\G", "bad escape"),
        (r"\p{IsGreek}", "is not known"),
        (r"[\P{Lower}]", "is not known"),
        ("[a-z&&[^b]]", "another class in it"),
        ("[a-z[A-Z]]", "another class in it"),
        ("[a&&b]", "intersection"),
        (r"\0101", "octal"),
        ("[a", "unterminated"),
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
