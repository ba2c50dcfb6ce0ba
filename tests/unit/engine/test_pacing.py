"""What a refill reads at a rate: one bucket for all that read, and slices of a table that is read as it is now."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.config.sections import Transform
from backfill_cli.engine.verify import pacing
from backfill_cli.engine.verify.pacing import Pacing, Slices, pacing_of
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.split import Split

RATES = st.sampled_from((None, 0.0, 0.4, 7.0, 500.0))


@dataclass
class Clock:
    now_ms: int = 1_000_000

    def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def paced(folder: Path, rate: float | None, clock: Clock) -> Pacing:
    (folder / "rate").write_text(json.dumps(rate))
    return Pacing(str(folder / "rate"), lambda: clock.now_ms, clock.sleep)


@given(st.lists(st.tuples(RATES, st.integers(1, 9_000), st.sampled_from((0, 40, 900, 30_000))), min_size=1))
def test_all_that_read_take_no_more_than_the_rate_that_is_in_force_allows(
    steps: list[tuple[float | None, int, int]],
) -> None:
    """Each time that a rate is set, one burst, and one that was saved; up to five seconds count as passed."""
    with TemporaryDirectory() as folder:
        clock, may, took = Clock(), 0.0, 0
        before: float | None = None
        for rate, most, passes_ms in steps:
            clock.now_ms += passes_ms
            each = paced(Path(folder), rate, clock)
            rows = each.allowed(most)
            if rate is None:
                assert rows == most
                may, took = 0.0, 0
            else:
                burst = max(rate, 1.0)
                may += rate * min(passes_ms, 5_000) / 1000 + (2 * burst if rate != before else 0.0)
                took += rows
                assert took <= may + 1e-6
                assert rows <= most
            before = rate


def test_a_lower_rate_acts_at_once_and_none_lifts_it(tmp_path: Path) -> None:
    clock = Clock()
    each = paced(tmp_path, 1_000.0, clock)
    assert each.awaited(10_000) == 1_000
    clock.sleep(1.0)
    paced(tmp_path, 10.0, clock)
    assert each.awaited(10_000) == 10
    began_ms = clock.now_ms
    assert sum(each.awaited(10_000) for _ in range(30)) <= 10 * (clock.now_ms - began_ms) / 1000 + 10
    paced(tmp_path, None, clock)
    assert each.awaited(10_000) == 10_000
    assert pacing_of(tmp_path) is not None
    assert pacing_of(tmp_path / "none") is None


@dataclass
class Upstream:
    """A table that is read as it is now; its key is its number. limits: of every read."""

    held: dict[str, int]
    clock: Clock
    limits: list[int] = field(default_factory=list)
    read: dict[str, list[int]] = field(default_factory=dict)
    needs: range | None = None

    def closed(self, _table: str, reads: list[SnapshotRead]) -> list[SnapshotRead]:
        found = []
        for one in reads:
            end = int(one.after or 0) + (one.limit_rows or 0)
            self.limits.append(one.limit_rows or 0)
            found.append(replace(one, up_to=None if end > self.held[one.split] else end, limit_rows=None))
        return found

    def rows_of(self, read: SnapshotRead) -> list[int]:
        rows = range(int(read.after or 0), self.held[read.split] if read.up_to is None else int(read.up_to))
        return [row for row in rows if self.needs is None or row in self.needs]

    def scan(self, _spark: Any, _table: str, reads: list[SnapshotRead]) -> Any:
        for one in reads:
            self.read.setdefault(one.split, []).extend(self.rows_of(one))
        self.clock.sleep(0.3)
        rows = sum(len(self.rows_of(one)) for one in reads)

        class Frame:
            count = rows

            def drop(self, _name: str) -> "Frame":
                return self

        return Frame()


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "observed", lambda rows, _: (rows, lambda: {"rows": rows.count}))
    monkeypatch.setattr(pacing, "write", lambda _rows, folder: folder.mkdir(parents=True))
    monkeypatch.setattr(pacing.transform, "rows", lambda rows, _: rows)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("rate", [30.0, 900.0, None])
@pytest.mark.parametrize("held", [(0,), (1,), (700, 3, 2_500)])
def test_every_row_of_a_table_is_read_once_in_short_reads_at_the_rate(
    tmp_path: Path, held: tuple[int, ...], rate: float | None
) -> None:
    clock = Clock()
    upstream: Any = Upstream({str(at): rows for at, rows in enumerate(held)}, clock)
    # what statistics say is wrong
    splits = tuple(Split("t", str(at), max(1, rows // 3), 1) for at, rows in enumerate(held))
    began_ms = clock.now_ms
    Slices(splits, paced(tmp_path, rate, clock)).write(Any, upstream, Transform(), tmp_path / "t")  # type: ignore
    past_s = (clock.now_ms - began_ms) / 1000
    assert upstream.read == {str(at): list(range(rows)) for at, rows in enumerate(held)}
    if rate is not None:
        assert sum(held) <= rate * (past_s + 1)
        assert all(limit <= rate * 5 for limit in upstream.limits)
        assert past_s <= 2 * sum(held) / rate + 10


@pytest.mark.usefixtures("no_spark")
def test_rows_that_the_upstream_leaves_out_are_passed_quickly_and_a_debt_is_paid(tmp_path: Path) -> None:
    clock, needs = Clock(), range(60_000, 62_000)
    upstream: Any = Upstream({"0": 100_000}, clock, needs=needs)
    began_ms = clock.now_ms
    place, pace = tmp_path / "t", paced(tmp_path, 500.0, clock)
    Slices((Split("t", "0", 100_000, 1),), pace).write(Any, upstream, Transform(), place)  # type: ignore
    past_s = (clock.now_ms - began_ms) / 1000
    assert upstream.read == {"0": list(needs)}
    assert past_s < 60, "at 500 rows a second, all of them take 200 s"
    assert len(needs) <= 500 * (past_s + 1)
