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
from kafka_tx.cli.lag import TIMEOUT_MS, KafkaConfigOption, KafkaOption, kafka_options
from kafka_tx.cli.stores import JsonOption
from kafka_tx.errors import KafkaTxError
from kafka_tx.kafka import dead_letter_form
from kafka_tx.running.redrive import DeadLetter, DeadLetterUnusableError, Redrive

dead_letters = typer.Typer(
    no_args_is_help=True, help="Show dead letters, or send them back to their topics."
)

TopicOption = Annotated[str, typer.Option(help="The dead-letter topic.")]
ServersOption = Annotated[str, typer.Option(help="host:port,host:port")]
_SHOWN = 60
"""Most characters of a key in a line."""


@dead_letters.command()
def show(
    topic: TopicOption,
    bootstrap_servers: ServersOption,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    sent: Annotated[
        bool, typer.Option("--sent", help="Also dead letters that were sent back.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most dead letters to show.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Print dead letters that `dead-letters send` has not sent back, oldest first.

    With --json, a list of objects, with key and value as text.
    """
    options = kafka_options(bootstrap_servers, kafka, kafka_config)
    redrive = Redrive(options, topic, TIMEOUT_MS)
    every = _waiting(redrive, sent=sent)
    if as_json:
        typer.echo(
            json.dumps([_fields(dead_letter) for dead_letter in islice(every, limit)])
        )
    for dead_letter in () if as_json else islice(every, limit):
        typer.echo(_line(dead_letter))
    if next(every, None) is not None:
        typer.echo(f"there are more; show them with --limit above {limit}", err=True)


@dead_letters.command()
def send(
    topic: TopicOption,
    bootstrap_servers: ServersOption,
    kafka: KafkaOption = None,
    kafka_config: KafkaConfigOption = None,
    skip_unusable: Annotated[
        bool,
        typer.Option(
            help="Skip dead letters that cannot be sent back. They stay in the"
            " topic and are not offered again."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send without asking.")] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to the topics and partitions of their records, once each.

    A record is sent as it was, without the dead letter's headers. A time that Kafka's
    client cannot write, such as 0, becomes the present one: the header
    kafka_tx.timestamp_ms has it, and such records are counted. The records and the
    offsets of the group kafka_tx.<dead-letter topic> are one Kafka transaction, so that
    each dead letter is sent once, also if this command is killed and started again. The
    dead letters stay in their topic.
    """
    change = Change(yes=yes, dry_run=dry_run, as_json=as_json)
    options = kafka_options(bootstrap_servers, kafka, kafka_config)
    redrive = Redrive(options, topic, TIMEOUT_MS)
    planned, unusable = _plan(redrive)
    for name, count in sorted(planned.items()):
        change.tell(f"{count} to {name}")
    for reason in unusable:
        change.tell(reason)
    if unusable and not skip_unusable:
        raise DeadLetterUnusableError(
            f"{len(unusable)} dead letters cannot be sent back, such as: {unusable[0]}."
            " Nothing was sent. Deal with these by hand, and add --skip-unusable to"
            " send all others"
        )
    if not change.is_agreed("Send them back?", "Nothing was sent. To send, add --yes."):
        return
    change.done(f"sent back: {_sent(redrive, set(planned), skips=skip_unusable)}")


def _sent(redrive: Redrive, topics: set[str], *, skips: bool) -> str:
    """Report how many dead letters were sent, also after an error."""
    counts: Counter[bool] = Counter()

    def reported(some: list[DeadLetter]) -> None:
        counts.update(dead_letter.keeps_time for dead_letter in some)

    try:
        redrive.send(topics, reported, skips=skips)
    except KafkaTxError:
        typer.echo(f"sent back before the error: {counts.total()}", err=True)
        raise
    late = (
        f", {counts[False]} of them with the present time instead of their own, which"
        f" is in the header {dead_letter_form.TIME}"
    )
    return f"{counts.total()}{late if counts[False] else ''}"


def _plan(redrive: Redrive) -> tuple[Counter[str], list[str]]:
    """Dead letters for each topic, and the reasons why some are not sent."""
    planned: Counter[str] = Counter()
    unusable: list[str] = []
    for dead_letter in _waiting(redrive):
        try:
            planned[redrive.usable(dead_letter).record.topic] += 1
        except DeadLetterUnusableError as error:
            unusable.append(error.message)
    return planned, unusable


def _waiting(redrive: Redrive, *, sent: bool = False) -> Iterator[DeadLetter]:
    for wanted in redrive.waiting(sent=sent):
        yield from redrive.read(wanted)


def _line(dead_letter: DeadLetter) -> str:
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
    return {
        "letter": dead_letter.where,
        **about,
        "key": _text(dead_letter.record.key),
        "value": _text(dead_letter.record.value),
        "timestamp_ms": dead_letter.record.timestamp_ms,
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
