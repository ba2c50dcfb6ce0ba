"""Statements that each end within a time, against a database in memory whose rows cost time."""

import json
from bisect import bisect_right
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.cdc import bounded
from backfill_cli.cdc.ranges import KeyRange
from backfill_cli.model.position import Cursor

LIMIT_MS = 500


@dataclass
class Server:
    """costs: by key from 0 on, what its row takes. A statement is ended when it has taken LIMIT_MS."""

    costs: list[int]
    steady_ms: int = 0
    took_ms: list[int] = field(default_factory=list)
    timed_out: int = 0

    def within(self, keys: KeyRange, rows: int) -> list[int]:
        low = 0 if keys.after is None else json.loads(str(keys.after)) + 1
        high = len(self.costs) if keys.up_to is None else min(len(self.costs), json.loads(str(keys.up_to)) + 1)
        found = list(range(low, high))[:rows]
        took = sum(self.costs[key] for key in found)
        self.steady_ms += min(took, LIMIT_MS)
        self.took_ms.append(min(took, LIMIT_MS))
        if took >= LIMIT_MS:
            self.timed_out += 1
            raise bounded.TimedOut
        return found

    def read(self, keys: KeyRange, rows: int) -> tuple[Cursor | None, list[int]]:
        found = self.within(keys, rows)
        return (json.dumps(found[-1]) if len(found) == rows else None), found

    def after(self, keys: KeyRange, rows: int) -> Cursor | None:
        return self.read(keys, rows)[0]

    def count(self, keys: KeyRange, most: int) -> int:
        return len(self.within(keys, most))


COSTS = st.lists(st.sampled_from([0, 0, 0, 1, 3, 40, 499]), max_size=60)
ENDS = st.none() | st.integers(0, 70).map(json.dumps)


@given(COSTS, ENDS, ENDS)
def test_each_row_is_read_once_and_in_order(costs: list[int], low: Cursor | None, high: Cursor | None) -> None:
    server, keys = Server(costs), KeyRange(low, high)
    found = [
        key for piece in bounded.pieces(keys, LIMIT_MS, server.read, lambda: server.steady_ms) for key in piece
    ]
    everything = list(range(len(costs)))
    first = 0 if low is None else bisect_right(everything, json.loads(str(low)))
    last = len(costs) if high is None else bisect_right(everything, json.loads(str(high)))
    assert found == everything[first:last]


@given(COSTS, st.integers(1, 70))
def test_a_key_is_found_and_rows_are_counted_in_halves(costs: list[int], rows: int) -> None:
    server = Server(costs)
    expected = json.dumps(rows - 1) if rows <= len(costs) else None
    assert bounded.key_after(KeyRange(None, None), rows, server.after) == expected
    counted = bounded.rows_in(
        KeyRange(None, None), rows, server.count, lambda k, n: bounded.key_after(k, n, server.after)
    )
    assert counted == min(rows, len(costs))


@given(st.lists(st.sampled_from([0, 3, 499]), max_size=40))
def test_a_row_that_takes_too_long_by_itself_is_told_with_the_key_before_it(costs: list[int]) -> None:
    server = Server([*costs, LIMIT_MS, 1])
    with pytest.raises(bounded.TimedOut) as told:
        list(bounded.pieces(KeyRange(None, None), LIMIT_MS, server.read, lambda: server.steady_ms))
    assert told.value.after == (json.dumps(len(costs) - 1) if costs else None)
    with pytest.raises(bounded.TimedOut) as told:
        bounded.key_after(KeyRange(None, None), len(costs) + 2, server.after)
    assert told.value.after == (json.dumps(len(costs) - 1) if costs else None)


def test_statements_take_half_of_the_time_and_seldom_too_long() -> None:
    server = Server([1] * 200_000)
    for _ in bounded.pieces(KeyRange(None, None), LIMIT_MS, server.read, lambda: server.steady_ms):
        pass
    settled = server.took_ms[server.took_ms.index(LIMIT_MS) + 1 :] if server.timed_out else server.took_ms
    assert server.timed_out < 10
    usual = sorted(settled)[len(settled) // 2]
    assert 0.2 * LIMIT_MS <= usual <= 0.6 * LIMIT_MS
