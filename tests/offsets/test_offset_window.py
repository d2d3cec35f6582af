import pickle

from kafka_tx.offsets.unfinished import OffsetWindow


def test_an_empty_window_ends_where_it_begins():
    window = OffsetWindow(7)

    assert (window.first_unfinished, window.emitted_to, window.size) == (7, 7, 0)
    assert list(window.completed()) == []
    assert window.oldest_since_ms() is None


def test_what_an_earlier_owner_completed_is_jumped_over():
    window = OffsetWindow(0, [(10, 20), (30, 40)])

    assert window.next_end(1_000) == 10
    window.emit(10, now_ms=0)
    assert window.emitted_to == 20
    assert window.next_end(25) == 25
    assert list(window.completed()) == [(10, 20), (30, 40)]


def test_a_run_that_touches_the_start_moves_it():
    assert OffsetWindow(10, [(10, 20), (20, 25)]).emitted_to == 25


def test_skipping_counts_only_what_nobody_completed():
    window = OffsetWindow(0, [(10, 20), (30, 40)])

    assert window.skip_to(35) == 20
    assert window.emitted_to == 40
    assert window.skip_to(5) == 0


def test_the_size_counts_records_and_not_holes():
    window = OffsetWindow(0)
    window.emit(100, now_ms=0)

    assert window.take_hole(10, 60) == 50
    assert window.take_hole(10, 60) == 0

    assert window.size == 50
    window.pending.remove(0, 10)
    assert window.first_unfinished == 60
    assert window.size == 40


def test_holes_that_were_passed_take_no_memory():
    """Also if nobody asks for the size, as without a bound of uncommitted offsets."""

    def kept_after(batches):
        window = OffsetWindow(0)
        for start in range(0, batches * 1_000, 1_000):
            window.emit(start + 1_000, now_ms=0)
            window.take_hole(start + 999, start + 1_000)
            window.pending.remove(start, start + 999)
            window.oldest_since_ms()
        return len(pickle.dumps(window))

    assert kept_after(1_000) < 2 * kept_after(1)


def test_a_cut_forgets_everything_above():
    window = OffsetWindow(0, [(50, 60)])
    window.emit(40, now_ms=0)
    window.pending.remove(0, 30)

    assert window.cut(35) == 5
    assert (window.emitted_to, list(window.pending)) == (35, [(30, 35)])
    assert list(window.completed()) == []


def test_the_age_is_that_of_the_first_emission_of_the_first_pending_record():
    window = OffsetWindow(0)
    window.emit(10, now_ms=100)
    window.emit(20, now_ms=200)

    assert window.oldest_since_ms() == 100
    window.pending.remove(0, 10)
    assert window.oldest_since_ms() == 200
    window.pending.remove(10, 20)
    assert window.oldest_since_ms() is None
