"""The instructions that make a reader's value of a writer's bytes.

``resolution`` makes a program of two schemas. It is a list of 32-bit words:
instructions, each with its operands. A decoder runs it from word 0 for each record,
over the bytes of the record, and appends to the slots of the reader's column
(``columns``). Each record appends exactly one value to slot 0.

====================  ==========================  =====================================
instruction           operands                    what it does
====================  ==========================  =====================================
``END``                                           ends the record: no byte may be left
``JUMP``              target                      goes on at word ``target``
``FAIL``              reason                      the record has no value: ``reasons``
``NULL``              slot                        reads nothing; appends null
``BOOLEAN``           slot                        reads a byte, 0 or 1
``INT``               slot                        reads a number of 32 bits
``LONG``              slot, bits, factor          reads a number of 32 or 64 bits;
                                                  multiplies it; below 0: divides by
                                                  the opposite, and rounds down
``FLOAT``             slot                        reads 4 bytes
``DOUBLE``            slot                        reads 8 bytes
``FLOAT_TO_DOUBLE``   slot                        reads 4 bytes
``LONG_TO_FLOAT``     slot, bits                  reads a number of 32 or 64 bits
``LONG_TO_DOUBLE``    slot, bits                  reads a number of 32 or 64 bits
``BYTES``             slot                        reads a length and bytes
``TEXT``              slot                        as ``BYTES``; they must be UTF-8
``FIXED``             slot, size                  reads ``size`` bytes
``DECIMAL``           slot, precision             reads a length and a number of two's
                                                  complement, the highest byte first
``FIXED_DECIMAL``     slot, precision, size       the same, of ``size`` bytes
``ENUM``              slot, count, then offset    reads an index below ``count``;
                      and length ``count`` times  appends that text of ``constants``;
                                                  length -1: as ``FAIL offset``
``UNION``             count, then ``count``       reads an index below ``count``; goes
                      targets                     on at that target
``RECORD``            slot                        appends a struct; the instructions of
                                                  its fields follow, in any order
``ARRAY``             slot, end, least            reads blocks of items: for each, the
                                                  words up to ``end``; goes on there
``MAP``               slot, end                   the same with a key before each item,
                                                  read as ``TEXT`` into slot + 1
``DEFAULT``           offset, length, end         runs the words up to ``end`` over so
                                                  many bytes of ``constants``; goes on
                                                  there
``SKIP_LONG``                                     reads a number of 64 bits
``SKIP_FIXED``        size                        passes over ``size`` bytes
``SKIP_BYTES``                                    reads a length, passes over bytes
``SKIP_BLOCKS``       end, least, has keys        as ``ARRAY`` or ``MAP``, without slot;
                                                  a block that names its size is passed
                                                  over as a whole
====================  ==========================  =====================================

Rules of decoders:

* Numbers are zigzag varints of at most 10 bytes that fit into 64 bits.
* ``NULL`` of a struct appends null to the slots below it, too, except below lists and
  maps: these get an empty list.
* Blocks: a count, and where it is negative its opposite and a size in bytes; 0 ends
  them. ``least`` is the least number of bytes of an item. A count times ``least`` must
  not exceed the bytes that are left. Items with ``least`` 0 are at most
  ``MOST_EMPTY_ITEMS`` in a record, counted over all its blocks.
* The items of a record, times the slots that one fills (itself and those below, up to
  lists and maps; of a map also its key), and the bytes of its ``DEFAULT``s are at most
  ``FREE_VALUES`` and ``VALUES_OF_A_BYTE`` for each of its bytes.
* A length, and the size of a block, may not exceed the bytes that are left.
* A decimal without bytes is 0.
* Each branch of a ``UNION`` but the last ends with a ``JUMP`` behind the last one.
* A record that fails leaves null in slot 0, and nothing else.
* Slots of a list's items follow the list's slot; a map's are keys, then values.
* A slot that would have 2^31 bytes or items is an error of the whole column.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import IntEnum

MOST_WORDS = 1 << 20
"""Of a program: types that are used in many places are written out in each."""

MOST_EMPTY_ITEMS = 1 << 10

FREE_VALUES, VALUES_OF_A_BYTE = 1 << 20, 16
"""What the items and defaults of a record may fill; see the rules of decoders."""


class Op(IntEnum):
    """Instructions; see the table above."""

    END = 0
    JUMP = 1
    FAIL = 2
    NULL = 3
    BOOLEAN = 4
    INT = 5
    LONG = 6
    FLOAT = 7
    DOUBLE = 8
    FLOAT_TO_DOUBLE = 9
    LONG_TO_FLOAT = 10
    LONG_TO_DOUBLE = 11
    BYTES = 12
    TEXT = 13
    FIXED = 14
    DECIMAL = 15
    FIXED_DECIMAL = 16
    ENUM = 17
    UNION = 18
    RECORD = 19
    ARRAY = 20
    MAP = 21
    DEFAULT = 22
    SKIP_LONG = 23
    SKIP_FIXED = 24
    SKIP_BYTES = 25
    SKIP_BLOCKS = 26


class Reason(IntEnum):
    """Why a record has no value, by number and in words.

    The words of ``FAILED`` are in the program.
    """

    text: str

    def __new__(cls, number: int, text: str = "") -> Reason:
        """A number that has a text."""
        made = int.__new__(cls, number)
        made._value_, made.text = number, text
        return made

    CUT = 1, "the bytes end within the value"
    TRAILING = 2, "bytes are left after the value"
    NUMBER = 3, "a number has more bits than its type"
    TEXT = 4, "a text is not UTF-8"
    LENGTH = 5, "a length or a count is negative, or beyond the bytes that follow"
    BOOLEAN = 6, "a boolean is neither 0 nor 1"
    INDEX = 7, "the schema has no branch or symbol of this number"
    DIGITS = 8, "a decimal has more digits than its type"
    TIME = 9, "a time does not fit into microseconds of 64 bits"
    EMPTY_ITEMS = 10, f"more than {MOST_EMPTY_ITEMS} items take no bytes"
    FAILED = 11
    AMPLIFIED = 12, "its lists and defaults are many times as large as its bytes"


@dataclass(frozen=True, slots=True)
class Program:
    """What makes a reader's value of a writer's bytes.

    Attributes:
        code: The words, as native 32-bit integers.
        constants: Bytes of symbols, and of defaults in the encoding of Avro.
        reasons: The texts that ``FAIL`` names.
    """

    code: bytes
    constants: bytes
    reasons: tuple[str, ...]

    def words(self) -> array[int]:
        """The words of ``code``."""
        return array("i", self.code)

    def why(self, reason: int, detail: int) -> str:
        """A failure in words; ``detail`` is the index of a text of this program."""
        if reason == Reason.FAILED:
            return self.reasons[detail]
        return Reason(reason).text
