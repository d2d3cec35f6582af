"""What the tests cost, by file, fixture and server: ``make test-cost``.

Processor time is that of a worker and of the children it has waited for; what runs
beside it, such as brokers and Spark's JVM, counts as servers. ``--record`` writes the
order of files for all later runs.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic  # here and now: tests put another one into the module
from typing import Any

import pytest

from integration.cluster.child import Child

RECORDED_S = 1.0
"""Files that take less have their turn behind all that are recorded."""

ROWS, WIDTH = 40, 160
CHECK_EVERY_S = 0.05
"""So often at most a worker looks at its servers, which costs some milliseconds."""

_JIFFY_S = 1 / os.sysconf("SC_CLK_TCK")
_CLASS = re.compile(r"(?:[a-z]\w*\.)+([A-Z]\w*)")


@dataclass
class Cost:
    """Sums of what several things took."""

    times: int = 0
    seconds: float = 0.0
    processor_s: float = 0.0
    servers_s: float = 0.0

    def add(self, other: Cost) -> None:
        self.times += other.times
        self.seconds += other.seconds
        self.processor_s += other.processor_s
        self.servers_s += other.servers_s

    @property
    def all_s(self) -> float:
        """Processor time with servers."""
        return self.processor_s + self.servers_s


def as_cost(numbers: Iterable[Any]) -> Cost:
    """Make what a worker has sent a cost again."""
    return Cost(*numbers)


@dataclass
class Costs:
    """What one worker, or all of them, measured."""

    files: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    tests: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    fixtures: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    phases: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))
    servers: dict[str, Cost] = field(default_factory=lambda: defaultdict(Cost))

    def to_send(self) -> dict[str, dict[str, list[float]]]:
        """As numbers and texts, which alone travel between workers."""
        return {
            table: {name: list(vars(cost).values()) for name, cost in rows.items()}
            for table, rows in vars(self).items()
        }

    def add(self, sent: dict[str, dict[str, list[float]]]) -> None:
        for table, rows in sent.items():
            for name, numbers in rows.items():
                getattr(self, table)[name].add(as_cost(numbers))


# --- in a worker --------------------------------------------------------------------


class Meter:
    """Measures what has passed since it was last asked."""

    def __init__(self, servers: dict[str, Cost]) -> None:
        self._servers = servers
        self._known: dict[int, tuple[str, float, float]] = {}
        self._at = self._now()
        self._checked_s = 0.0
        self._taken_s, self._ended_s = 0.0, 0.0

    def lap(self) -> Cost:
        """Take the time since the last lap, and count it."""
        seconds, processor_s = self._now()
        passed = Cost(1, seconds - self._at[0], processor_s - self._at[1])
        self._at = seconds, processor_s
        if seconds - self._checked_s >= CHECK_EVERY_S:
            self.check()
        passed.servers_s, counted_before_s = self._taken_s, self._ended_s
        self._taken_s, self._ended_s = 0.0, 0.0
        passed.processor_s = max(0.0, passed.processor_s - counted_before_s)
        return passed

    def check(self) -> None:
        """Note what servers took so far: what a killed one has started is lost."""
        self._checked_s = monotonic()
        taken_s, ended_s = self._of_servers()
        self._taken_s += taken_s
        self._ended_s += ended_s

    def _of_servers(self) -> tuple[float, float]:
        """What live ones took since the last check; what those that ended had taken.

        The latter is in the times of this process's children by now, too, but for what
        nobody waited for.
        """
        before, self._known = self._known, {}
        taken_s = 0.0
        for pid in children(os.getpid()):
            name, known_s, _ = before.pop(pid, ("", 0.0, 0.0))
            found = (name or name_of(pid), tree_s(pid), own_s(pid))
            self._known[pid] = found
            taken_s += found[1] - known_s
            taken = Cost(not name, 0.0, 0.0, found[1] - known_s)
            self._servers[found[0] or "(not known yet)"].add(taken)
        return taken_s, sum(of_itself_s for _, _, of_itself_s in before.values())

    @staticmethod
    def _now() -> tuple[float, float]:
        times = os.times()
        return monotonic(), sum(times[:4])


def children(pid: int) -> Iterator[int]:
    """Processes that a process has started; none where Linux does not say.

    Those of one that ends meanwhile are somebody else's from then on.
    """
    place = Path(f"/proc/{pid}/task")
    try:
        threads = os.listdir(place)
    except OSError:
        return
    for thread in threads:
        yield from map(int, _text(place / thread / "children").split())


def own_s(pid: int) -> float:
    """Processor time of a process, and of all children that it has waited for."""
    told = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(map(int, told[11:15])) * _JIFFY_S if told else 0.0


def tree_s(pid: int) -> float:
    """The same with its living children."""
    return own_s(pid) + sum(map(tree_s, children(pid)))


def name_of(pid: int) -> str:
    """Main class, module or program of a process; empty while it becomes one."""
    program, *words = _text(Path(f"/proc/{pid}/cmdline")).split("\0")[:-1] or [""]
    for before, word in zip(["", *words], words, strict=False):
        is_class = _CLASS.fullmatch(word) if "java" in program else None
        if is_class and before not in ("-cp", "--conf"):
            return is_class[1]
        if before == "-m" and "python" in program:
            return word
    return Path(program).name


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


def checks_before_the_end(meter: Meter) -> None:
    """Let a test's server be checked before it is ended, with what it has started."""
    end = Child._end

    def checked(child: Child, *given: Any) -> None:
        meter.check()
        end(child, *given)

    Child._end = checked  # type: ignore[assignment, method-assign]


class Measuring:
    """Counts each phase of each test, and each fixture of more than one test."""

    def __init__(self, began: float) -> None:
        self.costs = Costs()
        self._meter = Meter(self.costs.servers)
        checks_before_the_end(self._meter)
        self._within: list[Cost] = []
        self._test = ""
        until_now = Cost(1, monotonic() - began, sum(os.times()[:4]))
        self.costs.phases["start and imports"].add(until_now)

    def _count(self, phase: str) -> None:
        passed = self._meter.lap()
        for cost in self._within:
            cost.add(passed)
        self.costs.phases[phase].add(passed)
        if self._test:
            passed.times = 0
            self.costs.tests[self._test].add(passed)
            self.costs.files[self._test.partition("::")[0]].add(passed)

    def pytest_collection_finish(self) -> None:
        self._count("collection")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._count("between tests")
        self._test = item.nodeid
        self.costs.tests[item.nodeid].times += 1
        self.costs.files[item.nodeid.partition("::")[0]].times += 1
        try:
            return (yield)
        finally:
            self._count("tear-down")
            self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            self._count("set-up")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            self._count("call")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Count what it takes itself, without the fixtures that it asks for."""
        if fixturedef.scope == "function":
            return (yield)
        self._count("set-up")
        outer, self._within = self._within, [Cost()]
        (own,) = self._within
        try:
            return (yield)
        finally:
            self._count("set-up")
            self._within = outer
            own.times = 1
            place = fixturedef.baseid.rpartition("/")[2]
            self.costs.fixtures[f"{fixturedef.argname} ({place})"].add(own)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._count("end")
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cost"] = self.costs.to_send()


# --- where all workers' figures come together ---------------------------------------


class Summing:
    """Adds up what workers measured, prints it, and records the order of files."""

    def __init__(self, measured: Costs, *, records: bool) -> None:
        self._costs = measured
        self._records = records

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._costs.add(getattr(node, "workeroutput", {}).get("cost", {}))

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        for line in report(self._costs):
            terminalreporter.write_line(line)
        if self._records:
            from tests.scheduling import LONGEST_FILES  # which is a plugin beside this

            LONGEST_FILES.write_text(order_of(self._costs))
            terminalreporter.write_line(f"recorded in {LONGEST_FILES}")


def report(costs: Costs) -> Iterator[str]:
    """The tables, dearest rows first."""
    for title, rows, most in (
        ("phase", costs.phases, None),
        ("server (processor time beside the workers)", costs.servers, None),
        ("fixture of more than one test", costs.fixtures, None),
        ("file", costs.files, None),
        ("test", costs.tests, ROWS),
    ):
        yield ""
        yield f"{'times':>6} {'seconds':>8} {'processor':>9} {'servers':>8}  {title}"
        dearest = sorted(rows.items(), key=lambda row: -row[1].all_s)
        for name, cost in dearest[:most]:
            yield (
                f"{cost.times:6} {cost.seconds:8.1f} {cost.processor_s:9.1f}"
                f" {cost.servers_s:8.1f}  {name[:WIDTH]}"
            )
        whole = Cost()
        for cost in rows.values():
            whole.add(cost)
        yield (
            f"{whole.times:6} {whole.seconds:8.1f} {whole.processor_s:9.1f}"
            f" {whole.servers_s:8.1f}  (all)"
        )


def order_of(costs: Costs) -> str:
    """What is recorded: seconds of files, longest first, a line each."""
    longest = sorted(costs.files.items(), key=lambda row: (-row[1].seconds, row[0]))
    seconds = {
        name: round(cost.seconds)
        for name, cost in longest
        if cost.seconds >= RECORDED_S
    }
    return json.dumps(seconds, indent=1) + "\n"


# --- the plugin ---------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="write the order of files, tests/longest_files.json",
    )


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and sum up where results are printed."""
    is_worker = hasattr(config, "workerinput")
    is_alone = not is_worker and not config.getoption("numprocesses", None)
    costs = Costs()
    if is_worker or is_alone:
        measuring = Measuring(_began())
        costs = measuring.costs
        config.pluginmanager.register(measuring, "measuring")
    if not is_worker:
        summing = Summing(costs, records=config.getoption("record"))
        config.pluginmanager.register(summing, "summing")


def _began() -> float:
    """When this process was started, on the monotonic clock."""
    told = _text(Path("/proc/self/stat")).rpartition(")")[2].split()
    return int(told[19]) * _JIFFY_S if told else monotonic()
