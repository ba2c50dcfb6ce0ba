"""What is pending of a log: rows by observation, covered by a position, bounded in memory."""

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.kafka.growth import KEPT, Growth, observed, pending
from backfill_cli.upstreams.kafka.tasks import LEAST, Range, cut


def grown(*ends: int) -> Growth:
    growth = Growth()
    for turn, end in enumerate(ends):
        growth = observed(growth, {0: 0}, {0: end}, 1000 * (turn + 1))
    return growth


def test_each_observation_that_moved_is_an_epoch() -> None:
    assert [(e.ms, e.rows, e.cursors) for e in pending(grown(3, 3, 5), START)] == [
        (1000, 3, (("0", 3),)),
        (3000, 2, (("0", 5),)),
    ]


def test_what_a_position_covers_is_not_pending() -> None:
    assert [e.rows for e in pending(grown(3, 5), Position.of({"0": 4}))] == [1]
    assert pending(grown(3, 5), Position.of({"0": 5})) == ()


def test_a_log_that_begins_later_is_pending_from_there() -> None:
    growth = observed(Growth(), {0: 90}, {0: 100}, 1000)
    assert [e.rows for e in pending(growth, START)] == [10]


def test_time_never_goes_back() -> None:
    growth = observed(observed(Growth(), {0: 0}, {0: 1}, 5000), {0: 0}, {0: 2}, 4000)
    assert [e.ms for e in pending(growth, START)] == [5000, 5000]


@given(st.integers(1, 5 * KEPT), st.integers(0, 5 * KEPT))
def test_memory_is_bounded_and_no_offset_is_forgotten(count: int, position: int) -> None:
    growth = Growth()
    for end in range(1, count + 1):
        growth = observed(growth, {0: 0}, {0: end}, end)
    found = pending(growth, Position.of({"0": position}))
    assert len(growth.seen) <= KEPT + 1
    assert sum(e.rows or 0 for e in found) == max(0, count - position)
    assert [e.ms for e in found] == sorted(e.ms for e in found)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=5),
    st.integers(1, 16),
)
def test_tasks_hold_every_offset_once_and_none_is_small_or_large(
    told: list[tuple[int, int, int]], cores: int
) -> None:
    ranges = [Range(i, p, low, low + size) for i, (p, low, size) in enumerate(told)]
    tasks = cut(ranges, cores)
    total = sum(r.up_to - r.after for r in ranges)
    for one in ranges:
        mine = [t for t in tasks if t.read == one.read]
        at = one.after
        for task in mine:
            assert (task.partition, task.after) == (one.partition, at)
            at = task.up_to
        assert at == one.up_to or not mine
        assert bool(mine) == (one.up_to > one.after)
    assert all(0 < t.up_to - t.after <= max(LEAST, -(-total // cores)) for t in tasks)
