"""Tasks: one stage's components at work on one task's share of one attempt.

Pure Python and Arrow, so that a task runs on an executor, on the driver or in a test.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

from kafka_tx.errors import ConfigError, KafkaTxError
from kafka_tx.model import TransactionAttempt
from kafka_tx.topology.declare.bolts import BasicBolt, BatchBolt, TaskContext
from kafka_tx.topology.declare.graph import Component, ComponentKind
from kafka_tx.topology.declare.spouts import BatchSource
from kafka_tx.topology.plan.physical import Edge, Phase, PhysicalPlan, Stage, TaskId
from kafka_tx.topology.rows.blocks import Block, pieces
from kafka_tx.topology.run.messages import (
    BatchFailed,
    BatchStopped,
    Emitted,
    Message,
    Outgoing,
    Packet,
    Suspended,
    TaskReport,
)
from kafka_tx.topology.run.running_bolts import Outlet, RunningBolt
from kafka_tx.topology.run.task_failures import failure_of

_ROWS_PER_TURN = 4096
"""Rows given to a bolt before its output is passed on: bounds a task's memory."""


_Moment = Literal["prepare", "execute", "cleanup", "unpickle"]


class StageTask:
    """The components of one stage in one of its tasks, for one attempt.

    The base of tasks of batches and of chunks of records. An error of users' code ends
    the task and becomes a message; it is never raised.
    """

    _raised: tuple[type[BaseException], ...] = (GeneratorExit,)
    """Errors that are raised also while users' code runs."""

    def __init__(
        self, plan: PhysicalPlan, task: TaskId, attempt: TransactionAttempt
    ) -> None:
        self.id = task
        self._plan = plan
        self._stage: Stage = plan.stages[task.stage]
        self._attempt = attempt
        self._running_bolts: dict[str, Any] = {}
        self._packets: list[Packet] = []
        self._facts: dict[str, Any] = {}
        self._passed = 0  # the xor of the ids of packets, in and out
        self._component = ""  # whose code runs now; empty: ours
        self._moment: _Moment = "execute"

    def close(self) -> None:
        """Clean up all bolts that still wait; errors are ignored."""
        for running in self._running_bolts.values():
            with suppress(BaseException):
                running.close()
        self._running_bolts.clear()

    def _guarded(
        self, steps: Iterator[Message], packets: Iterable[Packet]
    ) -> Iterator[Message]:
        """Run the steps, and take all packets, also after a failure.

        A Spark worker that leaves input unread is lost.
        """
        try:
            yield from steps
        except self._raised:
            self.close()
            raise
        except BaseException as error:  # whatever user code raises, also SystemExit
            self.close()
            if not self._component:
                raise
            yield self._failed(error)
            for _ in packets:
                pass

    def _failed(self, error: BaseException) -> BatchFailed | BatchStopped:
        is_spout = self._plan.graph.by_name[self._component].kind is ComponentKind.SPOUT
        return failure_of(
            error, self._attempt, self._component, self.id.task, is_spout=is_spout
        )

    @contextmanager
    def _calling(self, name: str, moment: _Moment = "execute") -> Iterator[None]:
        """Run code of a component; after an error its name and moment stay set."""
        self._component, self._moment = name, moment
        yield
        self._component, self._moment = "", "execute"

    def _open(self, names: Iterable[str]) -> None:
        """Make and prepare the bolts of these components."""
        known = (self.id.task, self._stage.tasks, self._attempt, self._plan.settings)
        for name in names:
            component = self._plan.graph.by_name[name]
            if component.template is not None:
                with self._calling(name, "prepare"):
                    bolt = component.template.new()
                    running = self._running_bolts[name] = self._running_bolt(
                        component, bolt
                    )
                    running.prepare(TaskContext(name, *known))

    def _running_bolt(self, component: Component, bolt: object) -> Any:  # noqa: ANN401 - chunks have other classes
        raise ConfigError(f"{bolt!r} was a {component.kind} at build", option="bolt")

    def _wanted(self, name: str) -> set[str]:
        """The streams of a component that have readers."""
        return {edge.given.stream for edge in self._plan.edges[name]}

    def _ready(self) -> Iterator[Packet]:
        ready, self._packets = self._packets, []
        for packet in ready:
            self._passed ^= packet.id
            yield packet


class Task(StageTask):
    """The task of a batch.

    Lifecycle (executor or driver; one thread):

    1. ``process``: bolts are made and prepared, and rows are read or accepted. Emitted
       rows go to readers in this task at once, and to others as packets. Then all
       components of the processing phase finish, in graph order.
    2. Components of the commit phase wait with their emitted rows: on the driver in
       this object, elsewhere pickled (``Suspended``).
    3. ``commit``: more rows are accepted, then the rest finishes, in graph order.
    """

    def __init__(
        self, plan: PhysicalPlan, task: TaskId, attempt: TransactionAttempt
    ) -> None:
        super().__init__(plan, task, attempt)
        self._outlets: dict[str, Outlet] = {}
        self._outgoing: dict[tuple[str, Edge], Outgoing] = {}
        self._phase = Phase.PROCESSING

    # --- the two phases ---

    def process(
        self,
        packets: Iterable[Packet] = (),
        source: BatchSource | None = None,
        *,
        suspend: bool,
    ) -> Iterator[Message]:
        """Run the processing phase; yield packets as they get full, then the report.

        ``source`` has the reads of the spout, if the spout is in this stage.
        ``suspend``: another object will run the commit phase.
        """
        yield from self._guarded(self._process(packets, source, suspend), packets)

    def commit(
        self, packets: Iterable[Packet] = (), suspended: Suspended | None = None
    ) -> Iterator[Message]:
        """Run the commit phase; yield packets, then the report.

        ``packets`` are those that the commit phase has sent to this stage so far.
        ``suspended`` is the result of ``process`` in another object; None: this object
        ran ``process``, or this task had no part in the processing phase.
        """
        yield from self._guarded(self._commit(packets, suspended), packets)

    def _process(
        self, packets: Iterable[Packet], source: BatchSource | None, suspend: bool
    ) -> Iterator[Message]:
        self._open(self._stage.components)
        if source is not None:
            yield from self._read(source)
        yield from self._accept(packets)
        yield from self._finish()
        if suspend and self._running_bolts:
            yield self._suspended()
        yield self._report()

    def _commit(
        self, packets: Iterable[Packet], suspended: Suspended | None
    ) -> Iterator[Message]:
        self._phase = Phase.COMMIT
        if suspended is not None:
            self._resume(suspended)
        elif not self._running_bolts:
            self._open(self._names(Phase.COMMIT))
        for name in list(self._running_bolts):
            self._drain(name)
        yield from self._accept(packets)
        yield from self._finish()
        yield self._report()

    # --- rows in ---

    def _read(self, source: BatchSource) -> Iterator[Packet]:
        name = self._stage.components[0]
        blocks = iter(source.read(self.id.task, self._stage.tasks, self._facts))
        outlet = self._outlets[name]
        while True:
            with self._calling(name):
                block = next(blocks, None)
            if block is None:
                return
            for piece in pieces(block, _ROWS_PER_TURN * 16):
                with self._calling(name):
                    outlet.put(piece)
                self._drain(name)
                yield from self._ready()

    def _accept(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        for packet in packets:
            self._passed ^= packet.id
            self._deliver(packet.target, packet.source, packet.stream, packet.block)
            yield from self._ready()

    def _deliver(self, name: str, source: str, stream: str, block: Block) -> None:
        running = self._running_bolts[name]
        fields = self._plan.graph.fields(source, stream)
        whole = self._plan.graph.by_name[name].reads_arrow
        for piece in (block,) if whole else pieces(block, _ROWS_PER_TURN):
            self._component = name  # without _calling, which is dear for small blocks
            running.feed(source, stream, fields, piece)
            self._component = ""
            self._drain(name)

    # --- rows out ---

    def _drain(self, name: str) -> None:
        """Pass on a component's emitted rows, if the component ends in this phase."""
        if self._plan.phases.of(name) is not self._phase:
            return
        for stream, block in self._outlets[name].take():
            for edge in self._plan.edges[name]:
                if edge.given.stream != stream:
                    continue
                if edge.is_local:
                    self._deliver(edge.target, name, stream, block)
                else:
                    self._send(name, edge, block)

    def _send(self, name: str, edge: Edge, block: Block) -> None:
        outgoing = self._outgoing.get((name, edge))
        if outgoing is None:
            fields = self._plan.graph.fields(name, edge.given.stream)
            outgoing = Outgoing(edge, fields, self.id.task)
            self._outgoing[(name, edge)] = outgoing
        with self._calling(edge.target):  # its grouping may meet a value without a hash
            self._packets.extend(outgoing.put(block))

    # --- beginning and end ---

    def _names(self, phase: Phase) -> list[str]:
        phase_of = self._plan.phases.of
        return [name for name in self._stage.components if phase_of(name) is phase]

    def _open(self, names: Iterable[str]) -> None:
        known = self._plan.graph.by_name
        self._outlets |= {n: Outlet(known[n], self._wanted(n)) for n in names}
        super()._open(names)

    def _running_bolt(self, component: Component, bolt: object) -> Any:  # noqa: ANN401 - chunks have other classes
        if isinstance(bolt, BasicBolt | BatchBolt):
            outlet = self._outlets[component.name]
            return RunningBolt(bolt, outlet, self._attempt, component.reads_arrow)
        return super()._running_bolt(component, bolt)

    def _finish(self) -> Iterator[Packet]:
        """Finish the components of this phase, sources before their readers."""
        for name in self._names(self._phase):
            running = self._running_bolts.get(name)
            if running is not None:
                with self._calling(name):
                    running.finish()
                self._drain(name)
                del self._running_bolts[name]
                with self._calling(name):
                    running.close()
            yield from self._ready()
        for outgoing in self._outgoing.values():
            self._packets.extend(outgoing.flush())
            yield from self._ready()

    def _suspended(self) -> Suspended:
        bolts = {}
        for name, running in self._running_bolts.items():
            with self._calling(name):
                try:
                    bolts[name] = self._plan.dumps(running)
                except KafkaTxError:
                    raise  # of a bolt that has written what it held
                except Exception as error:
                    raise TypeError(
                        "what the bolt keeps until its commit phase cannot be pickled:"
                        f" {type(error).__name__}: {error}. Open connections, files and"
                        " locks in finish_batch, or declare the bolt .on_driver()"
                    ) from error
        self._running_bolts.clear()
        return Suspended(self.id, bolts)

    def _resume(self, suspended: Suspended) -> None:
        for name, data in suspended.bolts.items():
            with self._calling(name):
                running = pickle.loads(data)  # noqa: S301 - our own bytes
            self._running_bolts[name] = running
            self._outlets[name] = running.outlet

    def _report(self) -> TaskReport:
        emitted = tuple(Emitted(name, o.rows) for name, o in self._outlets.items())
        passed, self._passed = self._passed, 0
        return TaskReport(self.id, emitted, self._facts, passed)
