"""``subscribePattern`` means what Java means by it: asked of Java itself."""

from __future__ import annotations

import re

import pytest

from kafka_tx.options.java_pattern import PatternError, from_java

NAMES = (
    *("orders", "Orders", "ORDERS", "o.rders", "orders-2024", "a", "b", "c", "B", "_"),
    *("a.b", "a-b", "a_b", "zz9", "9", "x^y".replace("^", "."), "__internal", "eu.o.1"),
)
PATTERNS = r"""
    orders ^orders$ ord.* o(?<rest>.*)s (a|b)\1? (?<x>z)\k<x>9 .|x ^[.]
    [a-z&&[^b]] ^[a-z&&[^b]]$ ^[a-c&&[^a]&&[^b]]$ ^[^a-c&&[ab]]$ [[a][b]]
    ^[a-z[A-Z]]+$ ^[a-z[^a-z]]+$ ^[-a]$ ^[a-]$ ^[a_-]+$ ^[\w&&[^\d]]+$
    \p{Lower}+ ^\p{Lower}+$ ^\P{Lower}+$ ^[\p{Alpha}&&[^a-m]]+$ \p{Lu} \pL\pN ^\p{L}+$
    ^\p{IsAlphabetic}+$ ^\p{javaLowerCase}+$ \p{Punct} \h ^\H$ \d\D? \S\s?$
    \Qa.b\E ^\Qa.\E.$ ^[\Q-_\E]$ a\.b \x61\x2eb \u0061 \x{62} ^[\[a]$ ^[\]a]$ ^[a\-c]$
    (?i)orders (?i)^ord ^(?i:o)rders$ (?i)^[a-z&&[^b]]$ (?i)^[^b]$ (?-i:a)b?
    (?i)^(?-i:O)rders$ (?s)a.b (?u)a a++b (?>a|ab)c? a?+b z{2}9 ^[]a]$ ^[^]a]$
    (?=.*9)z (?<!z)9 \bb\b \Aorders\z orders\Z
""".split()  # noqa: SIM905 - a list of quotes and commas hides them


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
