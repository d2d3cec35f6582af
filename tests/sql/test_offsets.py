import pytest
import sqlalchemy as sa

from kafka_tx.errors import StateCorruptedError
from kafka_tx.model import CommittedOffset, TopicPartition
from kafka_tx.sql.offsets import SqlOffsetStore


@pytest.mark.parametrize(
    "runs",
    ["", "{", "7", "{}", '{"v":3,"completed":[[1]]}', '{"v":3,"completed":[1,2]}'],
)
def test_a_row_that_makes_no_sense_is_named_and_left_alone(tmp_path, runs):
    one = TopicPartition("orders", 0)
    url = f"sqlite:///{tmp_path}/state.db"
    store = SqlOffsetStore(url, "spout")
    store.store({one: CommittedOffset(1, completed=((3, 4),))})
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            sa.text("UPDATE kafka_tx_offsets SET completed = :runs"), {"runs": runs}
        )
    engine.dispose()

    with pytest.raises(StateCorruptedError, match="orders-0") as caught:
        store.load([one])

    assert url in str(caught.value)
    store.close()


def test_owners_that_make_no_sense_stop_the_writer(tmp_path):
    one = TopicPartition("orders", 0)
    url = f"sqlite:///{tmp_path}/state.db"
    store = SqlOffsetStore(url, "spout")
    store.acquire()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE kafka_tx_offset_owners SET owners = '7'"))
    engine.dispose()

    with pytest.raises(StateCorruptedError, match="kafka_tx_offset_owners"):
        store.store({one: CommittedOffset(1)})

    assert store.load([one]) == {}
    store.close()
