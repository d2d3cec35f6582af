import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_tx.errors import ConfigError
from kafka_tx.model import Broker, TopicDescription, TopicPartition
from kafka_tx.offsets.coordinators import Ownership, OwnershipChange, assign

ONE, TWO = Broker("kafka-1", 9092, 1), Broker("kafka-2", 9092, 2)
KEYS = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9))


def orders(*numbers):
    return tuple(TopicPartition("orders", number) for number in numbers)


def topic(name="orders", leaders=(ONE, ONE), topic_id="id-1"):
    return {name: TopicDescription(name, dict(enumerate(leaders)), topic_id)}


# --- assign -------------------------------------------------------------------------


def test_a_task_takes_every_nth_partition_in_the_order_of_topic_and_number():
    partitions = [TopicPartition("b", 0), *orders(10, 2, 1), TopicPartition("a", 5)]

    shares = [assign(partitions, task, 2).partitions for task in (0, 1)]

    assert shares == [
        (TopicPartition("a", 5), *orders(1, 10)),
        (TopicPartition("b", 0), *orders(2)),
    ]


@given(st.sets(KEYS), st.integers(1, 8))
def test_each_partition_is_exactly_one_task_s(partitions, total):
    shares = [assign(partitions, task, total).partitions for task in range(total)]

    assert sorted(p for share in shares for p in share) == sorted(partitions)
    sizes = sorted(len(share) for share in shares)
    assert sizes[-1] - sizes[0] <= 1


@given(st.integers(1, 20), st.integers(0, 20), st.integers(1, 8))
def test_partitions_added_to_a_topic_move_no_other(before, added, total):
    for task in range(total):
        share = assign(orders(*range(before)), task, total).partitions
        grown = assign(orders(*range(before + added)), task, total).partitions

        assert grown[: len(share)] == share


@pytest.mark.parametrize(("task", "total"), [(2, 2), (-1, 2), (0, 0)])
def test_a_task_index_outside_is_refused(task, total):
    with pytest.raises(ConfigError, match=rf"task_index.*{task}"):
        assign(orders(0), task, total)
    with pytest.raises(ConfigError):
        Ownership(task, total)


def test_more_tasks_than_partitions_is_worth_a_warning():
    assert assign(orders(0), 0, 1).warning is None
    assert assign(orders(0), 2, 3).warning == (
        "there are 3 tasks and only 1 partitions: 2 tasks have nothing to read"
    )


# --- Ownership ----------------------------------------------------------------------


@pytest.fixture
def ownership():
    made = Ownership(0, 1)
    made.refresh(topic())
    return made


def test_the_first_answer_gains_partitions_that_are_not_new():
    change = Ownership(0, 1).refresh(topic())

    assert change == OwnershipChange(gained=orders(0, 1))


def test_a_partition_that_appears_later_is_new(ownership):
    change = ownership.refresh(topic(leaders=(ONE, ONE, TWO)))

    assert change == OwnershipChange(gained=orders(2), new=orders(2), kept=orders(0, 1))


@pytest.mark.parametrize("first", [{}, topic(leaders=())])
def test_what_appears_after_an_answer_without_any_partition_is_new(first):
    ownership = Ownership(0, 1)
    ownership.refresh(first)

    assert ownership.refresh(topic()).new == orders(0, 1)
    assert ownership.awaited == set(orders(0, 1))  # that answer may have been outdated
    assert ownership.refresh(topic(leaders=(ONE, ONE, ONE))).new == orders(2)
    assert ownership.awaited == set(orders(0, 1))


def test_what_had_no_leader_in_the_first_answer_was_awaited():
    """Also where no partition had any."""
    ownership = Ownership(0, 1)
    ownership.refresh(topic(leaders=(None, None)))

    assert ownership.refresh(topic(leaders=(ONE, None))).new == orders(0)
    assert ownership.refresh(topic(leaders=(ONE, ONE, ONE))).new == orders(1, 2)
    assert ownership.awaited == set(orders(0, 1))


def test_a_partition_that_came_from_another_task_is_not_new():
    second = Ownership(1, 2)
    second.refresh(topic("b", leaders=(ONE, ONE)))

    change = second.refresh(topic("b", leaders=(ONE, ONE)) | topic("a", leaders=(ONE,)))

    assert change.lost == (TopicPartition("b", 1),)
    assert change.gained == (TopicPartition("b", 0),)
    assert change.new == ()


def test_a_moved_leader_changes_nothing_else(ownership):
    change = ownership.refresh(topic(leaders=(ONE, TWO)))

    assert change == OwnershipChange(kept=orders(0, 1))
    assert ownership.leader(orders(1)[0]) == TWO


@pytest.mark.parametrize(
    "answer",
    [{}, topic(leaders=(ONE,)), topic(leaders=(None, None)), topic(leaders=())],
    ids=["empty", "older", "no leaders", "no partitions"],
)
def test_an_answer_that_shows_less_takes_nothing_away(ownership, answer):
    for _ in range(10):
        assert ownership.refresh(answer) == OwnershipChange(kept=orders(0, 1))
    assert ownership.leader(orders(1)[0]) == ONE


def test_a_partition_without_a_leader_is_not_there_yet(ownership):
    change = ownership.refresh(topic(leaders=(ONE, ONE, None)))

    assert change == OwnershipChange(kept=orders(0, 1))
    assert ownership.leader(orders(2)[0]) is None
    assert ownership.leader(TopicPartition("absent", 0)) is None


@pytest.mark.parametrize("others", [{}, topic("other", (ONE,))], ids=["no", "one"])
def test_a_topic_is_gone_once_brokers_say_so_again_and_again(ownership, others):
    ownership.refresh(topic() | others)
    assert ownership.absent_from(others) == {"orders": "id-1"}

    changes = [ownership.refresh(others, {"orders"}) for _ in range(3)]

    assert [change.lost for change in changes] == [(), (), orders(0, 1)]
    assert [p.topic for p in ownership.partitions] == [*others]
    assert ownership.absent_from(others) == {}


def test_a_topic_that_is_only_absent_is_not_gone(ownership):
    for _ in range(10):
        assert not ownership.refresh(topic("other", leaders=(ONE,))).lost


def test_a_topic_that_is_not_denied_in_between_is_not_gone(ownership):
    for deleted in (["orders"], ["orders"], [], ["orders"], ["orders"]):
        assert not ownership.refresh({}, deleted).lost


def test_a_topic_with_another_id_was_created_again(ownership):
    change = ownership.refresh(topic(leaders=(TWO, ONE, ONE), topic_id="id-2"))

    assert change.recreated == orders(0, 1)
    assert change.gained == change.new == orders(2)


def test_an_answer_with_a_former_id_is_older(ownership):
    ownership.refresh(topic(leaders=(TWO,), topic_id="id-2"))

    change = ownership.refresh(topic(leaders=(ONE, ONE), topic_id="id-1"))

    assert change == OwnershipChange(kept=orders(0))
    assert ownership.leader(orders(0)[0]) == TWO


def test_brokers_that_tell_no_id_do_not_re_create_topics(ownership):
    assert not ownership.refresh(topic(topic_id=None)).recreated
    assert ownership.refresh(topic(topic_id="id-2")).recreated == orders(0, 1)
