"""A person with a job: starts it, looks at its sink, does what its errors say."""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from typer.testing import CliRunner

from integration.chaos.drivers import newest_entry
from integration.chaos.lake import Table
from integration.chaos.people.jobs import Run, Setup, Starter, checkpoint_of, named_anew
from integration.chaos.schedule import TABLES
from kafka_tx.cli.main import app
from kafka_tx.errors import KafkaTxError
from kafka_tx.spark.versions.jvm import error_of
from tests.properties.people_advice import MODE, WAYS

GOES_ON_WITHIN_S = 120.0
TRIES = 12
_POLL_EVERY_S = 0.5


class StuckError(Exception):
    """The job neither went on nor said why."""


class RefusedError(Exception):
    """The job says that it must not go on, and what it asks for is not to be had."""


@dataclass
class Account:
    """What became of a job.

    Attributes:
        title: What it was.
        done: What happened to it, in order.
        lost: Acknowledged numbers that are in no sink.
        doubled: Numbers that are there more than once.
        refusal: The text with which it stands still.
        stuck: Why it neither went on nor said why.
    """

    title: str
    done: list[str] = field(default_factory=list)
    sent: int = 0
    in_sink: int = 0
    lost: list[int] = field(default_factory=list)
    doubled: list[int] = field(default_factory=list)
    refusal: str = ""
    stuck: str = ""

    @property
    def is_good(self) -> bool:
        """Nothing is lost or doubled; it went on, or said why not."""
        return not (self.lost or self.doubled or self.stuck)

    def __str__(self) -> str:
        verdict = "good" if self.is_good else "NOT GOOD"
        lines = [
            f"{self.title}: sent {self.sent}, in the sink {self.in_sink},"
            f" lost {len(self.lost)} {self.lost[:5]},"
            f" doubled {len(self.doubled)} {self.doubled[:5]}: {verdict}"
        ]
        lines += [f"    {what}" for what in self.done]
        lines += [f"    stands still: {self.refusal}"] if self.refusal else []
        lines += [f"    STUCK: {self.stuck}"] if self.stuck else []
        return "\n".join(lines)


class Person:
    """One job and all that its owner may do about it."""

    def __init__(self, starter: Starter, setup: Setup, chance: random.Random) -> None:
        self.starter = starter
        self.parts = starter.parts
        self.setup = setup
        self.chance = chance
        self.run: Run | None = None
        self.rival: Run | None = None
        self.undo: dict[str, Setup] = {}
        self.copies: dict[str, Setup] = {}
        """What was copied, and of which setup."""
        self.plain: Counter[int] = Counter()
        """What was written while the job had no ``tx.id``."""
        self.account = Account(
            f"{setup.door} of {setup.sources} {setup.mode} store {setup.store}"
            f" sink {setup.sink}{' opaque' if setup.opaque else ''}"
        )
        self.left: list[str] = []
        """The checkpoints that this one is in the place of."""
        self.parts.numbers.begin(setup.topics)
        self._make_sink()

    def _make_sink(self) -> None:
        if self.setup.sink == "kafka":
            self.parts.kafka.create_topic(self.setup.name, 2)
        if self.setup.sink == "iceberg":
            self.table().session.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")

    def table(self) -> Table:
        """The sink, where it is a table of a lakehouse."""
        return self.starter.table(self.setup)

    def newest(self, source: str = "") -> int:
        """The txid, of this source if one is named, that the sink holds; or 0."""
        if self.setup.sink not in TABLES:
            return self.parts.newest(self.setup.name, source)
        held = self.starter.held(self.setup)
        return held.txid if source in {"", held.source} else 0

    def numbering(self) -> str:
        """Which one the sink counts in; empty without any."""
        if self.setup.sink not in TABLES:
            return self.parts.numbering(self.setup.name)
        return self.starter.held(self.setup).numbering

    # --- runs ---

    def go_on(self) -> None:
        """Let it read all that is acknowledged now, whatever it says meanwhile.

        Raises:
            RefusedError: It stands still, and says why.
            StuckError: It stands still, and does not.
        """
        wanted = set(self.parts.numbers.acknowledged)
        deadline, tries = time.monotonic() + GOES_ON_WITHIN_S, 0
        while time.monotonic() < deadline:
            if self.run is None:
                self.run = self.starter.start(self.setup)
            if not self.run.is_alive():
                tries += 1
                if tries > TRIES:
                    raise StuckError(f"it ended {tries} times")
                self.follow(self.run)
            elif not self.missing(wanted):
                self.setup = replace(self.setup, once={})
                return
            time.sleep(_POLL_EVERY_S)
        raise StuckError(f"{len(self.missing(wanted))} are missing, and no error came")

    def end(self) -> None:
        """No run of it lives any more."""
        for run in (self.run, self.rival):
            if run is not None:
                run.end()
        self.run = self.rival = None

    def end_between_batches(self) -> bool:
        """End it with no batch under way; False where that did not come about."""
        for _ in range(5):
            self.end()
            place = checkpoint_of(self.parts, self.setup)
            if newest_entry(place / "offsets") == newest_entry(place / "commits"):
                return True
            self.go_on()
        return False

    def missing(self, wanted: set[int]) -> set[int]:
        """What is in no sink, of what can be there."""
        return wanted - self.parts.numbers.forgone - self.counts().keys()

    def counts(self) -> Counter[int]:
        """How often each number is there."""
        return self.starter.counted(self.setup) + self.plain

    def settle(self) -> None:
        """Write no more, let the job read what is left, and draw up the account."""
        with self.parts.numbers.paused():
            if not self.account.refusal and not self.account.stuck:
                self.attempt(self.go_on)
            self.end()
            counts, numbers = self.counts(), self.parts.numbers
            self.account.sent = len(numbers.acknowledged)
            self.account.in_sink = len(counts)
            self.account.doubled = sorted(n for n, times in counts.items() if times > 1)
            if not self.account.refusal:
                self.account.lost = sorted(self.missing(numbers.acknowledged))

    def attempt(self, what: Callable[[], None]) -> bool:
        """Do it; where the job stands still, the account says why."""
        try:
            what()
        except RefusedError as error:
            self.account.refusal = str(error)
        except StuckError as error:
            self.account.stuck = str(error)
        return not self.account.refusal and not self.account.stuck

    # --- what errors say ---

    def follow(self, ended: Run) -> None:
        """Read why it ended, and do what that says, to the letter."""
        said, self.run = str(ended.error()), None
        ended.end()
        if "DeadError" in said:
            return
        error = error_of(said)
        text = str(error)
        self.note(f"said {text.strip()[:160]}")
        if self._passes(type(error).__name__, text):
            return
        ways = [
            way
            for way in WAYS
            if re.search(way.words, text) and self._may(way.name, text)
        ]
        if any(way.is_first for way in ways):
            ways = [way for way in ways if way.is_first]
        if not ways and type(error) is KafkaTxError:
            raise StuckError(f"it ended without an error of ours: {text}")
        if not ways:
            raise RefusedError(text)
        way = self.chance.choice(ways)
        self.note(f"did as it says: {way.name}")
        if "no other run" in text and self.rival is not None:
            self.rival.end()
            self.rival = None
        DO[way.name](self, text)

    def _passes(self, name: str, text: str) -> bool:
        if name == "FencedError" and ("another owner" in text or self.rival):
            if self.rival is not None:
                self.rival.end()
                self.rival = None
            return True
        if "spark.speculation" in text and self.starter.speculates():
            self.starter.renew_session()
            self.note("did as it says: no speculation")
            return True
        if "restored the table to" in text:
            self._after_a_restore(text)
            return True
        is_loss = name in {"DataLossError", "OffsetOutOfRangeError"}
        if is_loss and "failOnDataLoss" not in self.setup.once:
            self.set_once("failOnDataLoss", "false")
            return True
        if (
            "cannot be read any more" in text
        ):  # a task's: the next start says what to do
            return True
        return name in {"UnknownTopicError", "BrokerUnavailableError", "FetchError"}

    def _after_a_restore(self, text: str) -> None:
        """Take it back, as the text says; a new name of the sink is the other way."""
        words = " ".join(text.split())
        (to,) = re.findall(r"RESTORE TABLE … TO VERSION AS OF (\d+)", words)
        table = self.table()
        table.run(f"RESTORE TABLE {table.sql_name} TO VERSION AS OF {to}")
        self.note(f"did as it says: RESTORE to {to}")

    def _may(self, name: str, text: str) -> bool:
        is_query = self.setup.door != "topology"
        may = {
            "set tx.id back": "tx.id" in self.undo,
            "set tx.store back": "tx.store" in self.undo,
            "the mode that is named": True,
            "checkpoint": is_query and self._agrees("checkpoint", text),
            "store": is_query and self._agrees("store", text),
            "new checkpoint": is_query
            and "offsets set" not in text
            and self._agrees("new checkpoint", text),
            "offsets set": is_query and self.setup.sink != "kafka",
            "begin anew": is_query,
            "the former checkpoint": is_query and bool(self.left),
            "remove the store that was left": self.setup.store != "postgresql",
            "new sink": not is_query,
            "start again": is_query
            or (self.setup.store == "postgresql" and self.setup.sink != "kafka"),
            "empty the sink": not is_query,
        }
        return may.get(name, False)

    def _agrees(self, side: str, text: str) -> bool:
        """Whether the sink holds what the text asks for where one side is to decide."""
        is_elsewhere = self.setup.sink == "kafka"  # which never goes back
        if "start with the newest one" in text:
            return False  # checkpoints are not looked through here
        if numberings := re.findall(r"If the sinks have (\w+)", text):
            held = None if is_elsewhere else self.numbering()
            is_of_store = held in ("", numberings[1])
            return is_of_store == (side == "new checkpoint")
        done = re.search(r"Txid (\d+) or later", text)
        if done is None:
            return True
        has_all = is_elsewhere or self.newest() >= int(done[1])
        return has_all == (side == "checkpoint")

    def use_the_mode(self, text: str) -> None:
        """The one that is named."""
        found = re.search(MODE, text)
        assert found is not None
        self.end()
        self.undo.pop("tx.mode", None)
        self.setup = replace(self.setup, mode=found[1])

    def set_offsets(self, text: str) -> None:
        """As the command that is printed: which one depends on what the sink has."""
        self.end()
        chosen, *has_it_not = re.split(r"If it has not", text)
        if has_it_not and not self._is_in_sink(text):
            (chosen,) = has_it_not
        for id_, offsets in re.findall(r"--id (\S+) .*?--offsets '(.*?)'", chosen):
            words = ["offsets", "set", "--id", id_, "--offsets", offsets, "--yes"]
            words += ["--bootstrap-servers", self.parts.kafka.bootstrap_servers]
            self._command(*words, "--store", self.starter.store(self.setup))
        self.new_checkpoint()

    def _is_in_sink(self, text: str) -> bool:
        """Whether the sink has the txid that a text asks for."""
        asked = r"look whether the sink has txid (\d+)(?: of '([^']+)')?"
        found = re.search(asked, text)
        if found is None:
            return False
        return self.newest(found[2] or "") >= int(found[1])

    def remove_the_store_left(self, _text: str) -> None:
        """Of all ids, in the database of the sink."""
        for id_ in self.setup.ids:
            url = self.parts.database.url
            self._command("offsets", "reset", "--id", id_, "--store", url, "--yes")

    def _command(self, *words: str) -> None:
        result = CliRunner().invoke(app, list(words))
        what = " ".join(words[:2])
        self.note(f"kafka-tx {what}: {result.exit_code} {result.output.strip()[:120]}")

    def begin_anew(self) -> None:
        """Other ids, another sink and checkpoint: all is read again."""
        self.end()
        word = named_anew("anew").replace("+", "-")
        self.use_a_new_sink()
        self.setup = replace(self.setup, id=f"{self.setup.id}-{word}", once={})
        self._make_sink()
        self.new_checkpoint()
        self.left.clear()
        self.copies.clear()
        self.plain.clear()  # is in the former sink

    def use_the_former_checkpoint(self) -> None:
        """That the present one is in the place of."""
        self.end()
        self.setup = replace(self.setup, checkpoint=self.left.pop(), once={})

    def use_a_new_sink(self) -> None:
        """All is read again, into another one."""
        self.setup = replace(self.setup, name=f"{self.setup.name}_n")
        self.undo.clear()

    # --- what people do ---

    def note(self, what: str) -> None:
        """Into the account."""
        self.account.done.append(f"{time.strftime('%H:%M:%S')} {what}")

    def set_once(self, option: str, value: str) -> None:
        """For the next run only."""
        self.setup = replace(self.setup, once={**self.setup.once, option: value})

    def change(self, what: str, setup: Setup) -> None:
        """End the run, and set the job up otherwise; that can be set back."""
        self.end()
        self.undo.setdefault(what, self.setup)
        self.setup = setup

    def set_back(self, what: str) -> None:
        """As it was before ``what`` was changed."""
        self.end()
        former = self.undo[what]
        self.undo.clear()
        self.setup = replace(former, checkpoint=self.setup.checkpoint)

    def new_checkpoint(self) -> None:
        """Leave the former one where it is."""
        self.end()
        name = named_anew(self.setup.checkpoint)
        self.left.append(self.setup.checkpoint)
        self.setup = replace(self.setup, checkpoint=name)

    def copy_checkpoint(self) -> None:
        """While nothing runs."""
        self.end()
        place = checkpoint_of(self.parts, self.setup)
        if self.parts.copy(place, self.parts.work / "copy of checkpoint"):
            self.copies["checkpoint"] = self.setup

    def put_checkpoint_back(self) -> None:
        """As it was copied."""
        self.end()
        place = self.parts.work / "copy of checkpoint"
        self.parts.copy(place, checkpoint_of(self.parts, self.setup))

    def copy_store(self) -> None:
        """A SQLite file, while nothing runs."""
        self.end()
        place = self.parts.work / self.setup.store
        if self.parts.copy(place, self.parts.work / "copy of store"):
            self.copies["store"] = self.setup

    def put_store_back(self) -> None:
        """As it was copied."""
        self.end()
        self.parts.copy(
            self.parts.work / "copy of store", self.parts.work / self.setup.store
        )

    def remove_store(self) -> None:
        """Under a living run, as somebody does who tidies up."""
        (self.parts.work / self.setup.store).unlink(missing_ok=True)

    def remove_checkpoint(self) -> None:
        """While nothing runs; those that were left before are too old for anything."""
        self.end()
        self.left.clear()
        shutil.rmtree(checkpoint_of(self.parts, self.setup), ignore_errors=True)


DO: Mapping[str, Callable[[Person, str], None]] = {
    "set tx.id back": lambda person, _: person.set_back("tx.id"),
    "set tx.store back": lambda person, _: person.set_back("tx.store"),
    "the mode that is named": Person.use_the_mode,
    "checkpoint": lambda person, _: person.set_once("tx.onDisagreement", "checkpoint"),
    "store": lambda person, _: person.set_once("tx.onDisagreement", "store"),
    "new checkpoint": lambda person, _: person.new_checkpoint(),
    "offsets set": Person.set_offsets,
    "begin anew": lambda person, _: person.begin_anew(),
    "the former checkpoint": lambda person, _: person.use_the_former_checkpoint(),
    "remove the store that was left": Person.remove_the_store_left,
    "start again": lambda person, _: None,
    "empty the sink": lambda person, _: person.parts.empty(person.setup.name),
    "new sink": lambda person, _: person.use_a_new_sink(),
}
"""How a person does on real parts what a way out asks for, given the text."""
