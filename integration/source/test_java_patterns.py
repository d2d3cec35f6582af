"""``subscribePattern`` means what Java means by it: asked of Java itself."""

from __future__ import annotations

import re

import pytest

from kafka_tx.options.source import PatternError, from_java

NAMES = (
    *("orders", "Orders", "ORDERS", "o.rders", "orders-2024", "a", "b", "c", "B", "_"),
    *("a.b", "a-b", "a_b", "zz9", "9", "x^y".replace("^", "."), "__internal", "eu.o.1"),
)
PATTERNS = r"""
    orders ^orders$ ord.* o(?<rest>.*)s (a|b)\1? (?<x>z)\k<x>9 .|x ^[.]
    ^[-a]$ ^[a-]$ ^[a_-]+$ ^[^b]$ ^[\w]+$ ^[]a]$ ^[^]a]$
    \p{Lower}+ ^\p{Lower}+$ ^\P{Lower}+$ ^[\p{Alpha}._]+$ \p{Lu} \pL\pN ^\p{L}+$
    ^\p{IsAlphabetic}+$ ^\p{javaLowerCase}+$ \p{Punct} ^\p{Alnum}+$ \d\D? \S\s?$
    \Qa.b\E ^\Qa.\E.$ ^[\Q-_\E]$ \Qa.b a\.b \x61\x2eb \u0061 ^[\[a]$ ^[\]a]$ ^[a\-c]$
    (?i)orders (?i)^ord ^(?i:o)rders$ (?i)^[^b]$ (?-i:a)b? (?i)^\p{Lower}+$
    (?i)^(?-i:O)rders$ (?s)a.b (?u)a (?i)(?s)A.B a++b (?>a|ab)c? a?+b z{2}9
    (?=.*9)z (?<!z)9 \bb\b \Aorders\z orders\Z
""".split()  # noqa: SIM905 - a list of quotes and commas hides them
RARE = r"""
    [a-z&&[^b]] [[a][b]] ^[a-z[A-Z]]+$ \h \x{62} \p{IsGreek} [\P{Alpha}] (?x)a b(?x:a)
    \0101 a(?i)b \G \R \N{DIGIT \E
""".split()  # noqa: SIM905


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_translated_pattern_finds_what_java_finds(spark, pattern):
    java = spark._jvm.java.util.regex.Pattern.compile(pattern)
    expected = [name for name in NAMES if java.matcher(name).find()]

    ours = re.compile(from_java(pattern))

    assert [name for name in NAMES if ours.fullmatch(name)] == expected


@pytest.mark.parametrize("pattern", ["[a", "(", "a)", "[a&&]", "[z-a]", "*a", r"\y"])
def test_what_java_refuses_is_refused(pattern):
    with pytest.raises(PatternError):
        from_java(pattern)


@pytest.mark.parametrize("pattern", RARE)
def test_what_is_rare_is_refused_and_never_read_otherwise(pattern):
    with pytest.raises(PatternError):
        from_java(pattern)
