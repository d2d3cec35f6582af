"""``kafka-tx dead-letters``: show dead letters, and send them back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated

import typer

from kafka_tx.cli.changes import Change, DryRunOption
from kafka_tx.cli.kafka_logs import (
    TIMEOUT_MS,
    KafkaConfigOption,
    KafkaOption,
    kafka_options,
)
from kafka_tx.cli.stores import JsonOption
from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka import dead_letter_form
from kafka_tx.logs import one_line
from kafka_tx.model import OffsetRange
from kafka_tx.own_topics import MARKER_TOPIC
from kafka_tx.running.redrive import (
    DAMAGED,
    DeadLetter,
    DeadLetterUnusableError,
    Redrive,
)

dead_letters = typer.Typer(
    no_args_is_help=True, help="Show dead letters, or send them back to their topics."
)

TopicOption = Annotated[str, typer.Option(help="The dead-letter topic.")]
ServersOption = Annotated[str, typer.Option(help="host:port,host:port")]
MarkerOption = Annotated[
    str, typer.Option(help="Topic that says which dead letters were sent back.")
]
SentOption = Annotated[
    bool, typer.Option("--sent", help="Also dead letters that were sent back before.")
]
_SHOWN = 60
"""Most characters of a key in a line."""


@dead_letters.command()
def show(
    topic: TopicOption,
    bootstrap_servers: ServersOption,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    marker_topic: MarkerOption = MARKER_TOPIC,
    sent: SentOption = False,
    limit: Annotated[int, typer.Option(min=1, help="Most dead letters to show.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Print dead letters that `dead-letters send` has not sent back, oldest first.

    Control characters of records are shown as escapes.

    With --json, a list of objects, with key and value as text.
    """
    options = kafka_options(bootstrap_servers, kafka, kafka_config)
    redrive = Redrive(options, topic, TIMEOUT_MS, markers=marker_topic)
    every = _once(_letters(redrive, redrive.waiting(sent=sent)))
    if as_json:
        typer.echo(
            json.dumps([_fields(dead_letter) for dead_letter in islice(every, limit)])
        )
    for dead_letter in () if as_json else islice(every, limit):
        typer.echo(one_line(_line(dead_letter)))
    if next(every, None) is not None:
        typer.echo(f"there are more; show them with --limit above {limit}", err=True)


@dead_letters.command()
def send(
    topic: TopicOption,
    bootstrap_servers: ServersOption,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            help="Send only to this topic. Repeat it for several. Give it where nobody"
            " looks at the plan: who may write the dead-letter topic names the topics."
        ),
    ] = None,
    marker_topic: MarkerOption = MARKER_TOPIC,
    sent: SentOption = False,
    skip_unusable: Annotated[
        bool,
        typer.Option(
            help="Do not offer dead letters again that cannot be sent back for good."
            " They stay in the topic."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send without asking.")] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to the topics and partitions of their records, once each.

    A record is sent as it was, without the dead letter's headers. A time that cannot be
    restored, such as 0, becomes the present one: the header kafka_tx.timestamp_ms has
    it, and such records are counted.

    One Kafka transaction holds the records and a record of the marker topic that says
    which were sent. So each dead letter is sent once, also if this command is killed
    and started again. The dead letters stay in their topic. One that cannot be sent
    back is named, the others are sent, and the exit code is 1. Dead letters that come
    after the plan wait for the next call, and only topics of the plan are written.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    options = kafka_options(bootstrap_servers, kafka, kafka_config)
    redrive = Redrive(options, topic, TIMEOUT_MS, markers=marker_topic, to=to or ())
    waiting = redrive.waiting(sent=sent)
    planned, unusable = _plan(redrive, waiting)
    for name, count in sorted(planned.items()):
        change.tell(f"{count} to {name}")
    for reason in unusable:
        change.tell(reason)
    if not change.is_agreed("Send them back?", "Nothing was sent. To send, add --yes."):
        return
    report = _Report(change, set(unusable))
    try:
        redrive.send(
            waiting,
            set(planned),
            report.sent,
            skips=skip_unusable,
            again=sent,
            left=report.left,
        )
    except KafkaTxError:
        typer.echo(f"sent back before the error: {report.count}", err=True)
        raise
    change.done(report.text(skips=skip_unusable))
    if report.offered_again(skips=skip_unusable):
        raise typer.Exit(1)


class _Report:
    """Counts what is sent; names dead letters that turned out to be unusable."""

    def __init__(self, change: Change, known: set[str]) -> None:
        self._change = change
        self._known = known
        self._unusable: list[DeadLetterUnusableError] = []
        self.count = self._untimed = 0

    def sent(self, dead_letters: list[DeadLetter]) -> None:
        self.count += len(dead_letters)
        times = [dead_letter.record.timestamp_ms for dead_letter in dead_letters]
        self._untimed += times.count(None)

    def left(self, error: DeadLetterUnusableError) -> None:
        self._unusable.append(error)
        if (text := one_line(error.message)) not in self._known:
            self._known.add(text)
            self._change.tell(text)

    def offered_again(self, *, skips: bool) -> int:
        return sum(not (skips and error.lasts) for error in self._unusable)

    def text(self, *, skips: bool) -> str:
        words = [f"sent back: {self.count}"]
        if self._untimed:
            words.append(
                f"{self._untimed} of them with the present time instead of their own,"
                f" which is in the header {dead_letter_form.TIME}"
            )
        again = self.offered_again(skips=skips)
        if again:
            lasts = sum(error.lasts for error in self._unusable)
            advice = f"; {lasts} never can: leave them with --skip-unusable"
            words.append(f"left: {again}{advice if lasts and not skips else ''}")
        if len(self._unusable) > again:
            words.append(f"skipped: {len(self._unusable) - again}")
        return ", ".join(words)


def _plan(
    redrive: Redrive, waiting: list[OffsetRange]
) -> tuple[Counter[str], list[str]]:
    """Dead letters for each topic, and the reasons why some are not sent."""
    planned: Counter[str] = Counter()
    unusable: list[str] = []
    for dead_letter in _letters(redrive, waiting):
        try:
            planned[redrive.usable(dead_letter).record.topic] += 1
        except DeadLetterUnusableError as error:
            unusable.append(one_line(error.message))
    return planned, list(dict.fromkeys(unusable))


def _letters(redrive: Redrive, ranges: list[OffsetRange]) -> Iterator[DeadLetter]:
    for wanted in ranges:
        yield from redrive.read(wanted)


def _once(dead_letters: Iterator[DeadLetter]) -> Iterator[DeadLetter]:
    """The same, with one for all that are damaged together."""
    before: str | None = None
    for dead_letter in dead_letters:
        if dead_letter.damage is None or dead_letter.where != before:
            yield dead_letter
        before = dead_letter.where


def _line(dead_letter: DeadLetter) -> str:
    if dead_letter.damage is not None:
        return f"{dead_letter.where}  {DAMAGED}"
    about, origin = dead_letter.about, dead_letter.origin
    came = f"{origin[0]}@{origin[1]}" if origin else "not a dead letter"
    tries = [
        f"{word} {about[name]}"
        for word, name in (
            ("txid", dead_letter_form.TXID),
            ("attempts", dead_letter_form.ATTEMPTS),
            ("bytes, no value", dead_letter_form.BYTES),
        )
        if name in about
    ]
    key = (_text(dead_letter.record.key) or "none")[:_SHOWN]
    reason = about.get(dead_letter_form.ERROR, "")
    return f"{dead_letter.where}  {', '.join([came, *tries])}, key {key}: {reason}"


def _fields(dead_letter: DeadLetter) -> dict[str, object]:
    about: dict[str, object] = {
        name.removeprefix(dead_letter_form.PREFIX): value
        for name, value in dead_letter.about.items()
    }
    for name in ("partition", "offset", "attempts", "txid", "bytes"):
        with suppress(KeyError, ValueError):
            about[name] = int(str(about[name]))
    if dead_letter.damage is not None:
        about["error"] = DAMAGED
    return {
        "letter": dead_letter.where,
        **about,
        "key": _text(dead_letter.record.key),
        "value": _text(dead_letter.record.value),
        "timestamp_ms": dead_letter.record.timestamp_ms,
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
