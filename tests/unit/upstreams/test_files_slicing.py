"""Which row groups a slice touches and who reads it: properties, against the row-by-row meaning."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from backfill_cli.formats import group_slices
from backfill_cli.formats.row_groups import batches
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.files.snapshot import scan
from backfill_cli.upstreams.files.snapshot.scan import Layout, Readers, choose

LOCAL = LocalFileSystem()
GROUPS = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(lambda groups: sum(groups) > 0)


@st.composite
def slices(draw: st.DrawFn) -> tuple[list[int], int, int]:
    groups = draw(GROUPS)
    after = draw(st.integers(0, sum(groups) - 1))
    return groups, after, draw(st.integers(after + 1, sum(groups)))


def group_of(groups: list[int], row: int) -> int:
    """The group that holds a row, found by counting."""
    return [index for index, rows in enumerate(groups) for _ in range(rows)][row]


@given(slices())
def test_the_groups_touched_are_those_of_the_first_and_the_last_row(case: tuple[list[int], int, int]) -> None:
    groups, after, up_to = case
    hit = group_slices.touched(groups, after, up_to)
    assert hit.first_group == group_of(groups, after)
    assert hit.last_group == group_of(groups, up_to - 1)
    assert hit.start == sum(groups[: hit.first_group])


@given(slices())
def test_a_slice_is_read_by_row_group_when_they_hold_a_quarter_at_most(case: tuple[list[int], int, int]) -> None:
    groups, after, up_to = case
    hit = range(group_of(groups, after), group_of(groups, up_to - 1) + 1)
    assert scan.by_row_group(groups, after, up_to) == (sum(groups[i] for i in hit) * 4 <= sum(groups))


@given(slices(), st.integers(1, 60))
def test_tasks_cover_the_slice_once_and_in_order(case: tuple[list[int], int, int], most: int) -> None:
    groups, after, up_to = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_slices, "TASK_ROWS", most)
        parts = group_slices.tasks(groups, after, up_to)
    assert [row for part in parts for row in range(part.after, part.up_to)] == list(range(after, up_to))
    for part in parts:
        held = sum(groups[part.first_group : part.last_group + 1])
        begin = sum(groups[: part.first_group])
        assert part.start == begin <= part.after < part.up_to <= begin + held
        assert held <= most or sum(1 for rows in groups[part.first_group : part.last_group + 1] if rows) == 1


@pytest.mark.parametrize(("after", "up_to"), [(-1, 1), (3, 3), (0, 11), (5, 4)])
def test_a_slice_outside_the_file_is_refused(after: int, up_to: int) -> None:
    with pytest.raises(ValueError, match="of 10 rows"):
        group_slices.touched([5, 5], after, up_to)


@given(slices())
@settings(max_examples=60, deadline=None)
def test_the_row_group_reader_reads_exactly_the_slice(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[list[int], int, int]
) -> None:
    groups, after, up_to = case
    path = tmp_path_factory.mktemp("slices") / "file.parquet"
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        begin = 0
        for rows in groups:
            ids = list(range(begin, begin + rows))
            writer.write_table(
                pa.table({"id": ids, "s": [f"r{i}" for i in ids]}, schema), row_group_size=max(rows, 1)
            )
            begin += rows
    sizes = [pq.read_metadata(path).row_group(i).num_rows for i in range(pq.read_metadata(path).num_row_groups)]
    found = [
        row
        for part in group_slices.tasks(sizes, after, up_to)
        for b in batches(LOCAL, str(path), part, schema)
        for row in b["id"].to_pylist()
    ]
    assert found == list(range(after, up_to))


def test_the_row_group_reader_gives_the_types_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(
        pa.table({"t": pa.array([1_500], pa.timestamp("ms")), "s": pa.array(["x"], pa.large_string())}), path
    )
    schema = pa.schema([("s", pa.string()), ("t", pa.timestamp("us"))])
    (batch,) = batches(LOCAL, str(path), group_slices.GroupSlice(0, 0, 0, 0, 1), schema)
    assert batch.schema == schema


def reads(*slices: tuple[str, int, int]) -> list[SnapshotRead]:
    return [SnapshotRead("t", *one) for one in slices]


def test_whole_files_go_to_spark() -> None:
    layout = Layout((1,) * 10, plain=True)
    found = choose(reads(("a", 0, 10), ("b", 0, 3), ("b", 3, 8)), {"a": 10, "b": 8}, lambda _: layout)
    assert found == Readers(("a", "b"), {}, ())


def test_a_file_that_spark_cannot_read_is_read_by_row_group_whatever_the_slice() -> None:
    layout = Layout((5, 5), plain=True, by_spark=False)
    found = choose(reads(("a", 0, 10)), {"a": 10}, lambda _: layout)
    assert (found.whole, found.cut) == ((), {})
    assert [(part.after, part.up_to) for _, part in found.groups] == [(0, 10)]


def test_small_slices_go_by_row_group_and_large_ones_to_spark() -> None:
    layout = Layout((10,) * 10, plain=True)
    found = choose(reads(("a", 12, 15), ("b", 5, 60), ("c", 0, 0)), dict.fromkeys("abc", 100), lambda _: layout)
    assert found.whole == ()
    assert found.cut == {"b": ((5, 60),)}
    assert [(split, part.after, part.up_to) for split, part in found.groups] == [("a", 12, 15)]


def test_a_file_with_the_calendar_of_before_1582_is_never_read_by_row_group() -> None:
    found = choose(reads(("a", 1, 2)), {"a": 100}, lambda _: Layout((1,) * 100, plain=False))
    assert found == Readers((), {"a": ((1, 2),)}, ())
