"""What errors say is done to the letter, with what they print, on real parts."""

from __future__ import annotations

import re
import shlex

import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from integration.sizes import in_all
from integration.source.test_source_anew import Job, once, texts
from kafka_tx.cli.main import app


@pytest.fixture
def job(spark, kafka, tmp_path):
    made = Job(spark, kafka, tmp_path, "transactional")
    yield made
    made.close()


@pytest.mark.parametrize("sinks", ["have it", *in_all("have it not")])
def test_a_batch_that_cannot_be_replayed_is_left_as_the_error_says(
    job, kafka, topic, produce, tmp_path, sinks
):
    name = topic(1)
    job.topics = [name]
    produce(name, texts("a", 4))
    job.run()
    produce(name, texts("b", 5))
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.run(dies="after" if sinks == "have it" else "before")
    kafka.delete_records(name, {0: 6})
    produce(name, texts("c", 2))

    with pytest.raises(StreamingQueryException, match="REPLAY_IMPOSSIBLE") as error:
        job.run()
    has_it, has_it_not = commands(str(error.value))
    known = job.counted() == once(("a", 4), ("b", 5))
    assert known == (sinks == "have it")  # "look whether the sink has txid 2"
    follow(has_it if known else has_it_not, job, kafka)
    job.use_new_checkpoint()
    job.start_again_after_deaths()

    read = texts("b", 5) if known else texts("b", 5)[2:]
    assert job.counted() == once(("a", 4), ("c", 2)) | dict.fromkeys(read, 1)


@pytest.mark.all
@pytest.mark.parametrize("sinks", ["have it", "have it not"])
def test_a_batch_whose_topic_was_deleted_is_left_as_the_error_says(
    job, kafka, topic, produce, sinks
):
    kept, deleted = topic(1), topic(1)
    job.topics = [kept, deleted]
    produce(kept, texts("a", 2))
    produce(deleted, texts("b", 2))
    job.run()
    produce(kept, texts("c", 3))
    produce(deleted, texts("d", 3))
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.run(dies="after" if sinks == "have it" else "before")
    kafka.delete_topic(deleted)

    with pytest.raises(StreamingQueryException, match="REPLAY_IMPOSSIBLE") as reported:
        job.run()
    has_it, has_it_not, forget = commands(str(reported.value))
    follow(has_it if sinks == "have it" else has_it_not, job, kafka)
    follow(forget, job, kafka)
    job.use_new_checkpoint()
    job.start_again_after_deaths()

    former = once(("a", 2), ("b", 2), ("c", 3))
    assert job.counted() == (former | once(("d", 3)) if sinks == "have it" else former)
    kafka.create_topic(deleted)
    produce(deleted, texts("e", 2))
    job.run()
    assert job.counted() == former | once(("e", 2)) | (
        once(("d", 3)) if sinks == "have it" else {}
    )


@pytest.mark.all
def test_a_batch_whose_only_topic_was_deleted_is_left_as_the_error_says(
    job, kafka, topic, produce
):
    name = topic(1)
    job.topics = [name]
    produce(name, texts("a", 2))
    with pytest.raises(StreamingQueryException, match="DeadError"):
        job.run(dies="before")
    kafka.delete_topic(name)

    with pytest.raises(StreamingQueryException, match="REPLAY_IMPOSSIBLE") as reported:
        job.run()
    (forget,) = commands(str(reported.value))
    follow(forget, job, kafka)
    kafka.create_topic(name)
    produce(name, texts("b", 2))
    job.use_new_checkpoint()
    job.run()

    assert job.counted() == once(("b", 2))


def commands(text):
    """The commands that an error prints, in its order; Spark shows some texts twice."""
    return list(dict.fromkeys(re.findall(r"`kafka-tx (.*?)`", text)))


def follow(command, job, kafka):
    given = {
        "<tx.store>": f"sqlite:///{job.store}",
        "<kafka.bootstrap.servers>": kafka.bootstrap_servers,
    }
    words = [given.get(word, word) for word in shlex.split(command)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
