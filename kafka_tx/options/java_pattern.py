"""Java's regular expressions, as ``subscribePattern`` takes them, in Python's.

Both languages share most of their syntax; what differs is translated, and what cannot
be is refused by name. A topic's name has only letters, digits, ``.``, ``_`` and ``-``:
so every class of characters, however it is spelled, becomes the set of those it means.
Source: Java, java.util.regex.Pattern.
"""

from __future__ import annotations

import re
import string
import warnings
from collections.abc import Callable

_Set = frozenset[str]

_ALL: _Set = frozenset(string.ascii_letters + string.digits + "._-")
_LOWER, _UPPER = _ALL & set(string.ascii_lowercase), _ALL & set(string.ascii_uppercase)
_LETTERS, _DIGITS = _LOWER | _UPPER, _ALL & set(string.digits)
_NONE: _Set = frozenset()

_CLASSES: dict[str, _Set] = {
    "d": _DIGITS,
    "w": _LETTERS | _DIGITS | {"_"},
    "s": _NONE,
    "h": _NONE,
    "v": _NONE,
}
"""After a backslash; their complements are spelled in capitals."""

_PROPERTIES: dict[str, _Set] = {
    **dict.fromkeys(("lower", "ll", "lowercase_letter", "lowercase"), _LOWER),
    **dict.fromkeys(("upper", "lu", "uppercase_letter", "uppercase"), _UPPER),
    **dict.fromkeys(("alpha", "l", "letter", "alphabetic", "latin"), _LETTERS),
    **dict.fromkeys(("digit", "n", "nd"), _DIGITS),
    **dict.fromkeys(("alnum", "letterordigit"), _LETTERS | _DIGITS),
    **dict.fromkeys(("punct", "p", "punctuation"), _ALL - _LETTERS - _DIGITS),
    **dict.fromkeys(("ascii", "graph", "print", "basiclatin", "basic_latin"), _ALL),
    **dict.fromkeys(("blank", "cntrl", "space", "z", "c", "m", "s"), _NONE),
    **dict.fromkeys(("whitespace", "white_space", "control"), _NONE),
    "xdigit": _ALL & set(string.hexdigits),
    "pd": frozenset("-"),
    "pc": frozenset("_"),
    "po": frozenset("."),
}
"""After ``\\p``, without Java's prefixes (``Is``, ``In``, ``java``, ``script=``, …)."""

_PREFIX = re.compile(r"(general_category|gc|block|blk|script|sc)=|is|in|java", re.I)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CODE = re.compile(
    r"x\{(?P<long>[0-9a-fA-F]+)\}|x(?P<two>[0-9a-fA-F]{2})|u(?P<four>[0-9a-fA-F]{4})"
    r"|0(?P<octal>[0-3]?[0-7]{1,2})|c(?P<control>.)"
)
_PROPERTY = re.compile(r"[pP](?:\{(?P<name>[^}]*)\}|(?P<letter>[A-Z]))")
_FLAGS = re.compile(r"\(\?(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]*))?(?P<end>[:)])")
_NAMED = re.compile(r"\(\?<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>")
_MEANINGLESS = "duU"
"""Flags that change nothing for a topic's name."""


class PatternError(ValueError):
    """A pattern cannot be used; says why and what to write instead."""


def from_java(pattern: str) -> str:
    """The pattern as Python's ``re`` understands it, matched anywhere in a name.

    Raises:
        PatternError: It is none, or has something that only Java has.
    """
    translation = _Translation(pattern)
    translated = f"{translation.flags}.*(?:{translation.body()}).*"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(translated)
    except (re.error, OverflowError, Warning) as error:
        raise PatternError(str(error)) from None
    return translated


class _Translation:
    """One walk over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._folds = [False]
        """Whether upper and lower case are one, for each group that is open."""
        self.flags = ""
        while match := _FLAGS.match(pattern, self._at):
            if match["end"] == ":":
                break
            on, off = self._flags_of(match)
            self._at = match.end()
            self._folds = [(self._folds[0] or "i" in on) and "i" not in off]
            self.flags += f"(?{on})" if on else ""
            if off:
                raise PatternError(f"{match[0]} switches off what is not on")

    def body(self) -> str:
        """Everything after the flags at the start."""
        parts = []
        while self._at < len(self._text):
            parts.append(self._next())
        return "".join(parts)

    def _next(self) -> str:
        char = self._text[self._at]
        steps: dict[str, Callable[[], str]] = {
            "\\": self._escape,
            "[": lambda: self._written(self._class()),
            "(": self._group,
        }
        if char in steps:
            return steps[char]()
        if char == ")" and len(self._folds) > 1:
            self._folds.pop()
        self._at += 1
        return char

    # --- groups ---------------------------------------------------------------------

    def _group(self) -> str:
        flags = _FLAGS.match(self._text, self._at)
        named = _NAMED.match(self._text, self._at)
        folds = self._folds[-1]
        opened = "("
        self._at += 1
        if flags is not None:
            on, off = self._flags_of(flags)
            if flags["end"] == ")":
                raise PatternError(
                    f"{flags[0]} stands behind the start: put it first, or write"
                    f" {flags[0][:-1]}:…) around what it is for"
                )
            self._at = flags.end()
            folds = (folds or "i" in on) and "i" not in off
            opened = f"(?{on}{'-' + off if off else ''}:"
        elif named is not None:
            self._at = named.end()
            opened = f"(?P<{named['name']}>"
        self._folds.append(folds)
        return opened

    def _flags_of(self, match: re.Match[str]) -> tuple[str, str]:
        on, off = (
            "".join(f for f in match[group] or "" if f not in _MEANINGLESS)
            for group in ("on", "off")
        )
        strange = set(on + off) - set("ims")
        if strange:
            raise PatternError(
                f"{match[0]} has the flag {'x' if 'x' in strange else min(strange)},"
                " which is not supported: write the pattern without it"
            )
        return on, off

    # --- behind a backslash ---------------------------------------------------------

    def _escape(self) -> str:
        """An escape outside of a class."""
        rest = self._text[self._at + 1 :]
        if rest[:1] == "Q":
            return self._quoted()
        if rest[:1] in ("z", "Z"):
            self._at += 2
            return r"\Z"
        if match := re.match(r"k<(\w+)>", rest):
            self._at += 1 + match.end()
            return f"(?P={match[1]})"
        if re.match(r"[AB1-9]|b(?!\{)", rest):
            self._at += 2
            return "\\" + rest[0]
        found = self._escaped()
        return re.escape(found) if isinstance(found, str) else self._written(found)

    def _quoted(self) -> str:
        start = self._at + 2
        end = self._text.find(r"\E", start)
        self._at = len(self._text) if end < 0 else end + 2
        return re.escape(self._text[start : None if end < 0 else end])

    def _escaped(self) -> str | _Set:
        """A character or a set, wherever the escape stands."""
        rest = self._text[self._at + 1 :]
        if match := _PROPERTY.match(rest):
            self._at += 1 + match.end()
            return self._property(match)
        if match := _CODE.match(rest):
            self._at += 1 + match.end()
            return _character(match)
        letter = rest[:1]
        self._at += 2
        if letter.lower() in _CLASSES:
            found = _CLASSES[letter.lower()]
            return _ALL - found if letter.isupper() else found
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if not letter or (letter.isascii() and letter.isalnum()):
            raise PatternError(
                f"\\{letter} has no counterpart in Python's regular expressions: write"
                " what it means with letters, groups and [classes]"
            )
        return letter

    def _property(self, match: re.Match[str]) -> _Set:
        name = match["name"] or match["letter"] or ""
        found = _PROPERTIES.get(_PREFIX.sub("", name, count=1).lower())
        if found is None:
            found = _PROPERTIES.get(name.lower())
        if found is None:
            raise PatternError(
                f"\\{match[0]} is not known here: write the characters it means, as in"
                " [a-z]"
            )
        found = self._folded(found)
        return _ALL - found if match[0][0] == "P" else found

    # --- classes --------------------------------------------------------------------

    def _class(self) -> _Set:
        """``[…]``, with what stands in it; nested ones and intersections, too."""
        self._at += 1
        is_negated = self._takes("^")
        found = self._union(is_first=True)
        while self._takes("&&"):
            found &= self._union(is_first=False)
        if not self._takes("]"):
            raise PatternError("a class [… is not closed")
        return _ALL - found if is_negated else found

    def _union(self, *, is_first: bool) -> _Set:
        """Everything up to the end of the class or the next ``&&``."""
        found, begin = _NONE, self._at
        while self._at < len(self._text) and not self._text.startswith("&&", self._at):
            if self._text[self._at] == "]" and not (is_first and self._at == begin):
                break
            found |= self._item()
        if self._at == begin:
            raise PatternError("a class […] has nothing on one side of &&")
        return found

    def _item(self) -> _Set:
        if self._text[self._at] == "[":
            return self._class()
        if self._text.startswith(r"\Q", self._at):
            return self._folded(frozenset(_plain(self._quoted())))
        low = self._member()
        if not isinstance(low, str):
            return low
        high: str | _Set = low
        if re.match(r"-(?![\]\[]|&&)", self._text[self._at :]):
            self._at += 1
            high = self._member()
        if not isinstance(high, str) or high < low:
            raise PatternError(f"a class has a range from {low!r} that does not end")
        return self._folded(frozenset(c for c in _ALL if low <= c <= high))

    def _member(self) -> str | _Set:
        if self._at >= len(self._text):
            raise PatternError("a class [… is not closed")
        if self._text[self._at] == "\\":
            return self._escaped()
        self._at += 1
        return self._text[self._at - 1]

    # --- helpers of all of them -----------------------------------------------------

    def _takes(self, token: str) -> bool:
        is_there = self._text.startswith(token, self._at)
        self._at += len(token) * is_there
        return is_there

    def _folded(self, found: _Set) -> _Set:
        if not self._folds[-1]:
            return found
        return found | {c.lower() for c in found} | {c.upper() for c in found}

    @staticmethod
    def _written(found: _Set) -> str:
        if found == _ALL:
            return "."
        return f"[{re.escape(''.join(sorted(found)))}]" if found else "(?!)"


def _character(match: re.Match[str]) -> str:
    if match["control"]:
        return chr(ord(match["control"]) ^ 64)
    code = match["long"] or match["two"] or match["four"]
    return chr(int(code, 16) if code else int(match["octal"], 8))


def _plain(escaped: str) -> str:
    """What ``re.escape`` was given."""
    return re.sub(r"\\(.)", r"\1", escaped)
