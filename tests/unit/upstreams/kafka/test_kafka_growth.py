"""What is pending of a log: rows by observation, covered by a position, bounded in memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.kafka.ranges import LEAST, Range, cut
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.kafka.log.growth import KEPT, KEPT_ENDS, Growth


def grown(*ends: int) -> Growth:
    growth = Growth()
    for turn, end in enumerate(ends):
        growth.observe({"0": 0}, {"0": end}, 1000 * (turn + 1))
    return growth


def test_each_observation_that_moved_is_an_epoch() -> None:
    assert [(e.ms, e.rows, e.cursors) for e in grown(3, 3, 5).pending(START)] == [
        (1000, 3, (("0", 3),)),
        (3000, 2, (("0", 5),)),
    ]


def test_a_first_look_tells_since_when_what_is_pending_waits() -> None:
    growth = Growth(10)
    growth.observe({"0": 0}, {"0": 40}, 9_000, {"0": 20}, 1_000)
    assert [(e.ms, e.rows) for e in growth.pending(Position.of({"0": 20}))] == [(5_000, 10), (9_000, 10)]
    assert growth.oldest_ms == 1_000
    growth.pending(Position.of({"0": 31}))
    assert growth.oldest_ms == 5_000
    growth.observe({"0": 0}, {"0": 45}, 10_000)
    growth.pending(Position.of({"0": 40}))
    assert growth.oldest_ms is None, "it came between two looks"
    growth.pending(Position.of({"0": 45}))
    assert growth.oldest_ms is None
    assert grown(3).oldest_ms is None


def test_after_a_long_time_without_a_look_records_wait_at_most_since_the_look_before() -> None:
    growth = grown(3)
    growth.observe({"0": 0}, {"0": 3}, 60_000)  # nothing moved for a minute, and that was seen
    growth.observe({"0": 0}, {"0": 9}, 105_000)
    growth.pending(Position.of({"0": 3}))
    assert growth.oldest_ms == 60_000
    growth.observe({"0": 0}, {"0": 12}, 106_000)
    growth.pending(Position.of({"0": 9}))
    assert growth.oldest_ms is None


def test_a_clock_that_steps_back_between_two_looks_far_apart_makes_no_time_decrease() -> None:
    growth = Growth(part_rows=1)
    growth.observe({"0": 0}, {"0": 2}, 1_000_500)
    growth.observe({"0": 0}, {"0": 2}, 900_000)
    growth.observe({"0": 0}, {"0": 6}, 1_000_000)
    times = [epoch.ms for epoch in growth.pending(Position.of({"0": 0}))]
    assert times == sorted(times)


def test_what_a_position_covers_is_not_pending() -> None:
    assert [e.rows for e in grown(3, 5).pending(Position.of({"0": 4}))] == [1]
    assert grown(3, 5).pending(Position.of({"0": 5})) == ()


def test_a_log_that_begins_later_is_pending_from_there() -> None:
    growth = Growth()
    growth.observe({"0": 90}, {"0": 100}, 1000)
    assert [e.rows for e in growth.pending(START)] == [10]


def test_time_never_goes_back() -> None:
    growth = Growth()
    growth.observe({"0": 0}, {"0": 1}, 5000)
    assert len(growth.pending(Position.of({"0": 1}))) == 0
    growth.observe({"0": 0}, {"0": 2}, 4000)
    assert [e.ms for e in growth.pending(Position.of({"0": 1}))] == [5000]


@pytest.mark.seconds
@given(st.integers(1, 5 * KEPT), st.integers(0, 5 * KEPT))
def test_memory_is_bounded_and_no_offset_is_forgotten(count: int, position: int) -> None:
    growth = Growth()
    for end in range(1, count + 1):
        growth.observe({"0": 0}, {"0": end}, end)
    found = growth.pending(Position.of({"0": position}))
    assert len(found) <= KEPT + 1
    assert sum(e.rows or 0 for e in found) == max(0, count - position)
    assert [e.ms for e in found] == sorted(e.ms for e in found)


class Rereading:
    """All that was ever seen, walked again each time: what is pending, and since when."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, dict[str, int]]] = []

    def pending(self, position: dict[str, int]) -> list[tuple[int, int]]:
        reached, found = dict(position), []
        for ms, ends in self.seen:
            rows = sum(max(0, end - reached[p]) for p, end in ends.items())
            found += [(ms, rows)] if rows else []
            reached |= {p: max(end, reached[p]) for p, end in ends.items()}
        return found


STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 3), min_size=3, max_size=3), st.lists(st.floats(0, 1), min_size=3, max_size=3)
    ),
    max_size=30,
)


@given(STEPS)
def test_what_is_dropped_was_covered(steps: list[tuple[list[int], list[float]]]) -> None:
    """The log moves, then the position, by some share of what it is behind: as if nothing had been dropped."""
    growth, oracle = Growth(), Rereading()
    ends, at = dict.fromkeys("012", 0), dict.fromkeys("012", 0)
    for turn, (moves, shares) in enumerate(steps):
        ends = {p: end + more for (p, end), more in zip(ends.items(), moves, strict=True)}
        growth.observe(dict.fromkeys("012", 0), ends, turn)
        oracle.seen.append((turn, ends))
        for _ in range(2):
            found = growth.pending(Position.of(at))
            assert [(e.ms, e.rows) for e in found] == oracle.pending(at)
        at = {p: at[p] + int((ends[p] - at[p]) * share) for p, share in zip("012", shares, strict=True)}


def test_a_barrier_walks_what_is_new_and_an_idle_one_nothing() -> None:
    """400 partitions, 1,000 moves of all of them, each applied: what ever came is not walked again."""
    growth, oldest = Growth(), dict.fromkeys(map(str, range(400)), 0)
    for turn in range(1, 1001):
        growth.observe(oldest, dict.fromkeys(map(str, range(400)), turn), turn)
        growth.pending(Position.of({str(p): turn - 1 for p in range(400)}))
    assert growth.walked <= 2 * 1000 * 400
    at = Position.of({str(p): 1000 for p in range(400)})
    assert growth.pending(at) == ()
    before = growth.walked
    growth.observe(oldest, dict.fromkeys(map(str, range(400)), 1000), 2000)
    assert growth.pending(at) == ()
    assert growth.walked == before
    growth.observe(oldest, {**dict.fromkeys(map(str, range(400)), 1000), "7": 1001}, 2000)
    assert [e.cursors for e in growth.pending(at)] == [(("7", 1001),)]
    assert growth.walked == before + 1


def test_what_waits_for_one_held_partition_is_bounded() -> None:
    """History that is throttled covers nothing: 400 partitions move a thousand times meanwhile."""
    growth, oldest = Growth(), dict.fromkeys(map(str, range(400)), 0)
    for turn in range(1, 1001):
        growth.observe(oldest, dict.fromkeys(map(str, range(400)), turn), turn)
    found = growth.pending(START)
    assert sum(len(e.cursors) for e in found) <= KEPT_ENDS
    assert sum(e.rows or 0 for e in found) == 400 * 1000
    assert found[0].ms == 1


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
