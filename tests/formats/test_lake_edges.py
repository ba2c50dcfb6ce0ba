"""What an adversary found in the lake's formats: names inside other columns, names that are made again."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from sink_contract import Epochs, a_table, schema_json

from backfill_cli.contracts import EpochCommit
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.merge import Bounds, key_bounds, planned_for
from backfill_cli.lake.state import JobRecord, JobState
from backfill_cli.model.checkpoint import Owner
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.upstreams.iceberg.log import rows


def bounds(folder: Path, table: pa.Table, key: str = "id") -> Bounds | None:
    commit: EpochCommit = Epochs(folder).next()
    path = Path(commit.folder, "0.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    sink = a_table(key=(key,), schema=schema_json(**{key: "long"}))
    return key_bounds(commit, sink, (StagedFile("0.parquet", 1),))


def test_bounds_are_of_the_key_and_not_of_a_field_of_its_name_inside_another_column(tmp_path: Path) -> None:
    inside = pa.array([{"id": 7}, {"id": 8}], pa.struct([("id", pa.int64())]))
    rows = pa.table({"payload": inside, "id": pa.array([1000, 2000])})
    assert bounds(tmp_path, rows) == (1000, 2000)


def test_a_list_before_a_key_named_as_its_items_are_gives_no_wrong_bounds(tmp_path: Path) -> None:
    rows = pa.table({"_backfill_unsent": pa.array([[], []], pa.list_(pa.string())), "element": pa.array([5, 6])})
    assert bounds(tmp_path, rows, "element") == (5, 6)


def test_a_file_without_rows_hides_no_bounds_of_the_others(tmp_path: Path) -> None:
    """Spark's first task writes a file, even if a transform leaves none of its rows."""
    commit: EpochCommit = Epochs(tmp_path).next()
    Path(commit.folder).mkdir(parents=True, exist_ok=True)
    files = (StagedFile("0.parquet", 1), StagedFile("1.parquet", 1))
    kind = pa.schema([("id", pa.int64())])
    pq.ParquetWriter(Path(commit.folder, "0.parquet"), kind).close()
    pq.write_table(pa.table({"id": [5, 9]}, kind), Path(commit.folder, "1.parquet"))
    sink = a_table(schema=schema_json(id="long"))
    assert key_bounds(commit, sink, files) == (5, 9)
    assert key_bounds(commit, sink, files[:1]) is None


@pytest.mark.parametrize(
    ("operation", "told", "expected"),
    [
        ("append", {"added-records": "3"}, 3),
        ("append", {}, None),
        ("delete", {"deleted-records": "2"}, 2),
        ("delete", {}, None),
        ("replace", {}, 0),
        ("overwrite", {"added-records": "1"}, None),
    ],
)
def test_a_count_that_a_writer_left_out_is_read_and_not_taken_for_none(
    operation: str, told: dict[str, str], expected: int | None
) -> None:
    summary = SimpleNamespace(operation=SimpleNamespace(value=operation), additional_properties=told)
    snapshot: Any = SimpleNamespace(summary=summary)
    assert rows(snapshot) == expected


def test_who_stood_still_while_others_went_on_does_not_take_a_name_that_they_removed(tmp_path: Path) -> None:
    files = Blobs(fs.LocalFileSystem(), str(tmp_path))

    def owned(by: str) -> JobRecord:
        return JobRecord("job", owner=Owner(by, "host", "/path"))

    JobState(files, "job").change(lambda _held: owned("one"))
    asked: list[str | None] = []

    def stalled(held: JobRecord | None) -> JobRecord:
        asked.append(held.owner.catalog if held and held.owner else None)
        if len(asked) == 1:
            for by in ("two", "three", "four"):
                JobState(files, "job").change(lambda _held, by=by: owned(by))  # type: ignore[misc]
        return owned("late")

    JobState(files, "job").change(stalled)
    assert asked == ["one", "four"]


class Session:
    """Settings that a MERGE is planned with."""

    def __init__(self) -> None:
        self.conf = self
        self.settings: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]


@pytest.mark.parametrize(
    ("changed", "met", "interpreted"),
    [(1_000, 100_000, True), (1_000, 5_000_000, False), (1_000, None, False), (500_000, 0, False)],
)
def test_a_merge_is_interpreted_only_if_it_reads_few_rows_of_the_table_too(
    changed: int, met: int | None, interpreted: bool
) -> None:
    session: Any = Session()
    with planned_for(session, StagedTable(changed=changed), lambda: met):
        assert bool(session.settings) == interpreted
    assert not session.settings
