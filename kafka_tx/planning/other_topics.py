"""Refuses a run that does not read what its id has read, before it takes over.

Such a run uses the id by mistake, or its topics were changed. The advice of both texts
is safe to follow for all doors: a run that reads the former and the new topics finishes
what is planned, and no batch is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from kafka_tx.errors import OtherTopicsError
from kafka_tx.model import (
    Assigned,
    BatchMetadata,
    Subscription,
    TopicPartition,
    Topics,
    few,
)
from kafka_tx.offsets.discovery import is_subscribed

_GIVE_AN_ID = (
    "If another run uses this id, or this query opens the id twice, give each source an"
    " id of its own."
)


def check_shared(
    tx_id: str, store: str, wanted: Subscription, known: Collection[TopicPartition]
) -> None:
    """Refuse a subscription without any of the partitions that the id has read.

    ``known`` are the partitions with stored positions. A new id has none, and may begin
    with any subscription.

    Raises:
        OtherTopicsError: They share no partition.
    """
    if not known or any(is_subscribed(wanted, p) for p in known):
        return
    topics = sorted({p.topic for p in known})
    raise OtherTopicsError(
        f"id '{tx_id}' in {store} has read {few(topics)}, and this run reads"
        f" {_given(wanted)}: they share no partition. This run was refused before it"
        " took over: nobody was fenced, and nothing was written. If the option is"
        f" wrong, correct it. {_GIVE_AN_ID} If this job continues under '{tx_id}' with"
        " other topics, stop its former run, and start it with both:"
        f" {_with(wanted, known)}. That run finishes the planned batches, and reads new"
        f" topics from their first records. Once `kafka-tx offsets show --id {tx_id}"
        " --store <tx.store>` lists the new topics, you can leave out the former ones:"
        " the store keeps their positions. To let a query begin elsewhere in a new"
        " topic, first set its offsets with `kafka-tx offsets set`, while `kafka-tx"
        " status` shows no unfinished txid.",
        id=tx_id,
        store=store,
        topics=topics,
    )


def check_topics(
    id_: str, store: str, wanted: Subscription, known: Collection[str]
) -> None:
    """Refuse an at-least-once topology whose id has offsets of other topics only.

    Raises:
        OtherTopicsError: None of ``known``, the topics with offsets, is read.
    """
    if not known or any(is_subscribed(wanted, TopicPartition(t, 0)) for t in known):
        return
    raise OtherTopicsError(
        f"id '{id_}' in {store} has offsets of {few(sorted(known))}, and this topology"
        f" reads {_given(wanted)}: none of them. It was refused before it took over:"
        " nobody was fenced, and nothing was written. Give this topology an id of its"
        " own: it begins at its start_offset_time. The offsets of the former topics"
        f" stay under '{id_}', where a topology that reads them goes on",
        id=id_,
        store=store,
        topics=sorted(known),
    )


def check_read_again(
    tx_id: str,
    store: str,
    wanted: Subscription,
    batch: BatchMetadata,
    deleted: Callable[[Mapping[str, str | None]], Collection[str]],
) -> None:
    """Refuse a planned batch with records that the subscription leaves out.

    ``deleted`` finds out which topics do not exist any more, by name and known id. The
    records of these are lost, which is another error.

    Raises:
        OtherTopicsError: Some of its topics exist, and are not subscribed to.
    """
    left_out = [
        r
        for r in batch.ranges
        if len(r) and not is_subscribed(wanted, r.topic_partition)
    ]
    ids = batch.topic_ids
    topics = {r.topic_partition.topic for r in left_out}
    if not topics or topics <= set(deleted({t: ids.get(t) for t in sorted(topics)})):
        return
    raise OtherTopicsError(
        f"transaction {batch.txid} of '{tx_id}' in {store} must read"
        f" {few(map(str, left_out))} again, and this run reads only {_given(wanted)}."
        f" Nothing is lost, and this run wrote nothing. {_GIVE_AN_ID} If the topics of"
        " this query were changed, start it with the former topics, too:"
        f" {_with(wanted, batch.ends())}. Once it has finished transaction"
        f" {batch.txid}, you can leave them out.",
        id=tx_id,
        store=store,
        topics=sorted(topics),
    )


def _given(wanted: Subscription) -> str:
    """A subscription as its option."""
    if isinstance(wanted, Topics):
        return f"subscribe={','.join(wanted.names)}"
    if isinstance(wanted, Assigned):
        return f"assign={_assigned(wanted.partitions)}"
    return f"subscribePattern={wanted.pattern}"


def _with(wanted: Subscription, known: Iterable[TopicPartition]) -> str:
    """The option for a subscription and these partitions."""
    former = sorted({p.topic for p in known})
    if isinstance(wanted, Topics):
        return _given(Topics(tuple(dict.fromkeys([*former, *wanted.names]))))
    if isinstance(wanted, Assigned):
        return _given(Assigned((*known, *wanted.partitions)))
    names = (re.escape(topic) for topic in former if not wanted.matching([topic]))
    return f"subscribePattern={'|'.join([*names, wanted.pattern])}"


def _assigned(partitions: Iterable[TopicPartition]) -> str:
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(set(partitions)):
        numbers.setdefault(topic, []).append(number)
    return json.dumps(numbers)
