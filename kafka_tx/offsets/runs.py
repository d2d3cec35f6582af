"""A set of offsets that needs memory for its holes, not for its records.

Offsets are grouped into blocks of ``BLOCK``. A full block needs no memory of its own:
full neighbours form one run in a ``RunList``. Only a block that is partly in the set
has a bitmap (one int). A single acknowledgement is one look-up and two operations on a
512-bit int, for any number of runs; a contiguous range of any length touches at most
two bitmaps. An isolated hole costs about 400 bytes.

One sorted list of all runs would need half a million runs for a million offsets
acknowledged in random order, and every change moves half the list. Blocked lists (as in
sortedcontainers) take about 2 µs an offset, several times the bitmap's time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class RunList:
    """Sorted disjoint half-open runs of integers; runs that touch are one run."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        """Number of runs."""
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs ``(start, end)``, ascending."""
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, value: int) -> bool:
        at = bisect_right(self._starts, value) - 1
        return at >= 0 and value < self._ends[at]

    @property
    def first(self) -> int | None:
        """The lowest integer, or None if empty."""
        return self._starts[0] if self._starts else None

    @property
    def last_end(self) -> int | None:
        """One past the highest integer, or None if empty."""
        return self._ends[-1] if self._ends else None

    def add(self, start: int, end: int) -> None:
        """Add ``[start, end)``, and join it with every run it overlaps or touches."""
        if start >= end:
            return
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def remove(self, start: int, end: int) -> None:
        """Remove ``[start, end)``, and cut the runs at its edges."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        if low >= high:
            return
        before, after = self._starts[low], self._ends[high - 1]
        kept = [(before, start)] if before < start else []
        if after > end:
            kept.append((end, after))
        self._starts[low:high] = [run[0] for run in kept]
        self._ends[low:high] = [run[1] for run in kept]

    def overlap(self, start: int, end: int) -> list[tuple[int, int]]:
        """The runs that overlap ``[start, end)``, cut to it, ascending."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return [
            (max(self._starts[at], start), min(self._ends[at], end))
            for at in range(low, high)
        ]


_SHIFT = 9
BLOCK = 1 << _SHIFT
_IN_BLOCK = BLOCK - 1
_FULL = (1 << BLOCK) - 1
_BIT = tuple(1 << place for place in range(BLOCK))


class OffsetRuns:
    """A set of offsets that reads and writes like a list of runs.

    Single offsets are added and discarded in constant time, ranges in time that grows
    with the runs they replace. Not safe to share between threads.
    """

    __slots__ = ("_bits", "_full", "_partly", "_size")

    def __init__(self, *runs: tuple[int, int]) -> None:
        self._bits: dict[int, int] = {}  # block number -> bitmap, neither 0 nor full
        self._partly = RunList()  # the block numbers in _bits
        self._full = RunList()  # block numbers that are wholly in the set
        self._size = 0
        for start, end in runs:
            self.add(start, end)

    def __len__(self) -> int:
        """Number of offsets, not of runs."""
        return self._size

    def __contains__(self, offset: int) -> bool:
        block = offset >> _SHIFT
        bits = self._bits.get(block)
        if bits is None:
            return block in self._full
        return bool(bits & _BIT[offset & _IN_BLOCK])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The runs ``(start, end)``, ascending, disjoint and not touching."""
        return _joined(self._pieces(0, self.end or 0))

    def __repr__(self) -> str:
        shown = [f"[{start}, {end})" for (start, end), _ in zip(self, range(5))]  # noqa: B905 - the first five
        return f"OffsetRuns({', '.join(shown)}; {self._size} offsets)"

    @property
    def first(self) -> int | None:
        """The lowest offset, or None if empty."""
        partly, full = self._partly.first, self._full.first
        if partly is not None and (full is None or partly < full):
            return (partly << _SHIFT) + _lowest_bit(self._bits[partly])
        return None if full is None else full << _SHIFT

    @property
    def end(self) -> int | None:
        """One past the highest offset, or None if empty."""
        partly, full = self._partly.last_end, self._full.last_end
        if partly is not None and (full is None or partly > full):
            return ((partly - 1) << _SHIFT) + self._bits[partly - 1].bit_length()
        return None if full is None else full << _SHIFT

    def add(self, start: int, end: int) -> int:
        """Add ``[start, end)``; return how many offsets are new."""
        before = self._size
        for block, mask in _edges(start, end):
            self._set(block, mask)
        low, high = _whole_blocks(start, end)
        if low < high:
            self._drop_blocks(low, high)
            self._full.add(low, high)
            self._size += (high - low) << _SHIFT
        return self._size - before

    def discard(self, offset: int) -> bool:
        """Remove one offset; False if it was not in the set."""
        block = offset >> _SHIFT
        bits = self._bits.get(block)
        if bits is None:
            return self.remove(offset, offset + 1) == 1
        mask = _BIT[offset & _IN_BLOCK]
        if not bits & mask:
            return False
        left = bits ^ mask
        self._size -= 1
        if left:
            self._bits[block] = left
        else:
            self._forget_bits(block)
        return True

    def remove(self, start: int, end: int) -> int:
        """Remove ``[start, end)``; return how many offsets it removed."""
        before = self._size
        if not before:
            return 0
        for block, mask in _edges(start, end):
            self._clear(block, mask)
        low, high = _whole_blocks(start, end)
        if low < high:
            self._drop_blocks(low, high)
        return before - self._size

    def remove_below(self, offset: int) -> int:
        """Remove everything below ``offset``; return how many it removed."""
        first = self.first
        return 0 if first is None or first >= offset else self.remove(first, offset)

    def remove_from(self, offset: int) -> int:
        """Remove ``offset`` and all above; return how many it removed."""
        end = self.end
        return 0 if end is None or end <= offset else self.remove(offset, end)

    def overlap(self, start: int, end: int) -> list[tuple[int, int]]:
        """The runs within ``[start, end)``, cut to it, ascending."""
        return list(_joined(self._pieces(start, end)))

    def first_beyond(self, *others: OffsetRuns) -> int | None:
        """The lowest offset that is in none of the others; None: there is none."""
        runs = [*self._full, *self._partly]
        for block in (block for run in sorted(runs) for block in range(*run)):
            bits = self._bits_of(block)
            for other in others:
                bits &= ~other._bits_of(block)
            if bits:
                return (block << _SHIFT) + _lowest_bit(bits)
        return None

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs of ``[start, end)`` that are *not* in the set, ascending."""
        position = start
        for low, high in self._pieces(start, end):
            if low > position:
                yield position, low
            position = high
        if position < end:
            yield position, end

    # --- blocks ---------------------------------------------------------------------

    def _bits_of(self, block: int) -> int:
        return self._bits.get(block) or (_FULL if block in self._full else 0)

    def _set(self, block: int, mask: int) -> None:
        bits = self._bits.get(block)
        if bits is None:
            if block in self._full:
                return
            bits = 0
            self._partly.add(block, block + 1)
        joined = bits | mask
        self._size += joined.bit_count() - bits.bit_count()
        self._bits[block] = joined
        if joined == _FULL:
            self._forget_bits(block)
            self._full.add(block, block + 1)

    def _clear(self, block: int, mask: int) -> None:
        bits = self._bits.get(block)
        if bits is None:
            if block not in self._full:
                return
            bits = _FULL
            self._full.remove(block, block + 1)
            self._partly.add(block, block + 1)
        left = bits & ~mask
        self._size -= bits.bit_count() - left.bit_count()
        self._bits[block] = left
        if not left:
            self._forget_bits(block)

    def _forget_bits(self, block: int) -> None:
        del self._bits[block]
        self._partly.remove(block, block + 1)

    def _drop_blocks(self, low: int, high: int) -> None:
        for first, last in self._full.overlap(low, high):
            self._size -= (last - first) << _SHIFT
        self._full.remove(low, high)
        for first, last in self._partly.overlap(low, high):
            for block in range(first, last):
                self._size -= self._bits.pop(block).bit_count()
        self._partly.remove(low, high)

    def _pieces(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs within ``[start, end)``, cut to it; neighbours may touch."""
        low, high = start >> _SHIFT, ((end - 1) >> _SHIFT) + 1
        runs = [(*run, True) for run in self._full.overlap(low, high)]
        runs += [(*run, False) for run in self._partly.overlap(low, high)]
        for first, last, is_full in sorted(runs) if len(runs) > 1 else runs:
            if is_full:
                yield max(first << _SHIFT, start), min(last << _SHIFT, end)
                continue
            for block in range(first, last):
                base = block << _SHIFT
                bits = self._bits[block]
                if base < start:
                    bits = bits >> (start - base) << (start - base)
                if base + BLOCK > end:
                    bits &= _BIT[end - base] - 1
                yield from _bit_runs(bits, base)


def _whole_blocks(start: int, end: int) -> tuple[int, int]:
    """The blocks ``[low, high)`` that lie wholly within ``[start, end)``."""
    return (start + _IN_BLOCK) >> _SHIFT, end >> _SHIFT


def _edges(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The at most two blocks partly within ``[start, end)``, with their bits."""
    if start >= end:
        return
    first, last = start >> _SHIFT, end >> _SHIFT
    low, high = start & _IN_BLOCK, end & _IN_BLOCK
    if first == last:
        yield first, _BIT[high] - _BIT[low]
        return
    if low:
        yield first, _FULL + 1 - _BIT[low]
    if high:
        yield last, _BIT[high] - 1


def _joined(pieces: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same offsets in runs that do not touch."""
    start = end = -1
    for low, high in pieces:
        if low != end:
            if start < end:
                yield start, end
            start = low
        end = high
    if start < end:
        yield start, end


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def _bit_runs(bits: int, base: int) -> Iterator[tuple[int, int]]:
    """The runs of ones in ``bits``, shifted by ``base``, ascending."""
    while bits:
        start = _lowest_bit(bits)
        carried = bits + (1 << start)  # a carry from the run's start to past its end
        end = _lowest_bit(carried)
        yield base + start, base + end
        bits &= carried
