"""Java's regular expressions, as ``subscribePattern`` takes them, in Python's.

Both languages share what people write for topics. Named groups, quotations and named
classes are translated; what is rare, and what Python would read otherwise, is refused
by name. A topic's name has only letters, digits, ``.``, ``_`` and ``-``.
Source: Java, java.util.regex.Pattern.
"""

from __future__ import annotations

import re
import warnings

_CLASSES = {
    **dict.fromkeys(("Lower", "Ll", "javaLowerCase", "IsLowercase"), "a-z"),
    **dict.fromkeys(("Upper", "Lu", "javaUpperCase", "IsUppercase"), "A-Z"),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic"), "a-zA-Z"),
    **dict.fromkeys(("Digit", "N", "Nd", "IsDigit"), "0-9"),
    "Alnum": "a-zA-Z0-9",
    "Punct": "._\\-",
}
"""After ``\\p``, with what stands in a class of Python."""

_TOKEN = re.compile(
    r"\\Q(?P<quoted>.*?)(?:\\E|$)"
    r"|\\(?P<sign>[pP])(?:\{(?P<long>[^}]*)\}|(?P<short>[A-Z]))"
    r"|\\k<(?P<again>\w+)>"
    r"|\(\?<(?P<named>[a-zA-Z]\w*)>"
    r"|\\(?P<escaped>.)"
    r"|(?P<opened>\[\^?\]?)"
    r"|(?P<flags>\(\?[a-zA-Z]*x)"
    r"|.",
    re.DOTALL,
)


class PatternError(ValueError):
    """A pattern cannot be used; says why and what to write instead."""


def from_java(pattern: str) -> str:
    """The pattern as Python's ``re`` understands it, matched anywhere in a name.

    Raises:
        PatternError: It is none, or has something that only Java has.
    """
    flags = re.match(r"(?:\(\?[a-zA-Z]+\))*", pattern)
    start = flags.end() if flags else 0
    on = "".join(sorted(set(pattern[:start]) & set("imsx")))
    translated = f"{f'(?{on})' if on else ''}.*(?:{_translated(pattern[start:])}).*"
    if "x" in on:
        raise PatternError("the flag x is not supported: write the pattern without it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(translated)
    except (re.error, OverflowError, Warning) as error:
        raise PatternError(str(error)) from None
    return translated


def _translated(pattern: str) -> str:
    parts = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text.startswith("\\"):
            text = _behind_backslash(token, in_class=in_class)
        elif in_class:
            if token["opened"]:
                raise PatternError(
                    "a class has another class in it: write all its characters in one,"
                    r" as in [a-z0-9]; for the character itself write \["
                )
            in_class = text != "]"
        elif token["named"]:
            text = f"(?P<{token['named']}>"
        elif token["flags"]:
            raise PatternError(f"{text} has the flag x, which is not supported")
        else:
            in_class = bool(token["opened"])
        parts.append(text)
    return "".join(parts)


def _behind_backslash(token: re.Match[str], *, in_class: bool) -> str:
    if token["quoted"] is not None:
        return re.escape(token["quoted"])
    if token["sign"]:
        return _class(token, in_class=in_class)
    if token["again"]:
        return f"(?P={token['again']})"
    if token["escaped"] == "0":
        raise PatternError(r"\0 begins an octal number: write the character itself")
    return r"\Z" if token["escaped"] in ("z", "Z") else token[0]


def _class(token: re.Match[str], *, in_class: bool) -> str:
    found = _CLASSES.get(token["long"] or token["short"] or "")
    if found is None or (in_class and token["sign"] == "P"):
        raise PatternError(
            f"{token[0]} is not known here: write the characters it means, as in [a-z]"
        )
    if in_class:
        return found
    return f"[{'^' if token['sign'] == 'P' else ''}{found}]"
