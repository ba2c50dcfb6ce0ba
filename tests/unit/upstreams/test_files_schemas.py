"""Columns of change files: the first file with others, new ones with and without a declared type."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import at, land, opened, pending, restored, root
from hint_typed import typed

from backfill_cli.errors import BadData, ConfigError
from backfill_cli.model.position import Position

__all__ = ["root"]


def change_feed(path: Path, **columns: pa.DataType) -> None:
    marks = {"_change_type": pa.string(), "_commit_version": pa.int64()}
    pq.write_table(pa.schema([*marks.items(), *columns.items()]).empty_table(), path)


def schema_of(epoch: Any) -> dict[str, str] | None:
    found = dict(epoch.schema).get("t")
    return None if found is None else {f["name"]: f["type"] for f in json.loads(found)["fields"]}


def test_csv_cannot_hold_a_nested_column_of_the_snapshot(root: Path) -> None:
    nested = pa.schema([("id", pa.int64()), ("a", pa.list_(pa.int64())), ("b", pa.binary())])
    pq.write_table(nested.empty_table(), root / "snapshot" / "a.parquet")
    upstream = opened(root, changes={"format": "dms", "csv": {"header": True}})
    upstream.pin()
    land(root / "changes", "1.csv", "Op,id,b", "I,1,YQ==")
    with pytest.raises(BadData, match=r"1.csv: column 'a' is gone"):
        upstream.observe(Position(), False)
    land(root / "changes", "2.csv", "Op,id,a", "I,1,[1]")
    with pytest.raises(BadData, match=r"2.csv: column 'a': csv cannot hold array<bigint>"):
        upstream.observe(Position(), False)


def test_case_26_the_first_file_with_other_columns_carries_the_schema(root: Path) -> None:
    upstream = opened(root, changes={"format": "change-feed"})
    upstream.pin()
    same = {"name": pa.string(), "id": pa.int64()}
    change_feed(root / "changes" / "1.parquet", **same)
    change_feed(root / "changes" / "2.parquet", **same, more=pa.date32())
    change_feed(root / "changes" / "3.parquet", **same, more=pa.date32())
    change_feed(root / "changes" / "4.parquet", **same)
    change_feed(root / "changes" / "5.parquet", id=pa.string(), name=pa.string())
    assert [schema_of(e) for e in upstream.observe(Position(), False).pending] == [
        None,
        {"id": "long", "name": "string", "more": "date"},
        None,
        {"id": "long", "name": "string"},
        {"id": "string", "name": "string"},
    ]
    assert schema_of(upstream.observe(at("2.parquet"), False).pending[0]) is None


def test_case_26_a_restored_upstream_knows_the_columns_at_its_position(root: Path) -> None:
    pin = opened(root, changes={"format": "change-feed"}).pin()
    change_feed(root / "changes" / "1.parquet", id=pa.int64(), name=pa.string(), more=pa.date32())
    change_feed(root / "changes" / "2.parquet", id=pa.int64(), name=pa.string(), more=pa.date32())
    upstream = opened(root, changes={"format": "change-feed"})
    upstream.restore(pin)
    assert [schema_of(e) for e in upstream.observe(at("1.parquet"), False).pending] == [None]


def test_any_number_of_files_without_rows_hides_no_column_from_the_next_process(root: Path) -> None:
    """A column that is gone was NULL in all rows: only twenty files were searched for the last that shows any."""
    upstream = opened(root, changes={"columns": "note STRING"})
    pin = upstream.pin()
    land(root / "changes", "01.json", shown(note="x"))
    for number in range(2, 30):
        land(root / "changes", f"{number:02}.json", json.dumps({"op": "d", "before": {"id": 1}, "after": None}))
    upstream.observe(Position(), False)
    for last in (at("01.json"), at("29.json")):
        memory = upstream.remembered(last)
        upstream.observe(last, False)
    land(root / "changes", "50.json", shown())
    with pytest.raises(BadData, match=r"50\.json: the last line with a row: column 'note' is gone"):
        restored(root, pin, memory, columns="note STRING").observe(last, False)


def test_case_69_a_position_that_goes_back_finds_the_schema_change_again(root: Path) -> None:
    upstream = opened(root, changes={"format": "change-feed"})
    upstream.pin()
    change_feed(root / "changes" / "1.parquet", id=pa.int64(), name=pa.string())
    change_feed(root / "changes" / "2.parquet", id=pa.int64(), name=pa.string(), more=pa.date32())
    assert pending(upstream, Position()) == ["1.parquet", "2.parquet"]
    first = upstream.observe(at("1.parquet"), False).pending
    assert upstream.observe(at("2.parquet"), False).pending == ()
    assert upstream.observe(at("1.parquet"), False).pending == first
    assert schema_of(first[0]) == {"id": "long", "name": "string", "more": "date"}
    assert upstream.observe(at("2.parquet"), False).pending == ()
    assert upstream.observe(Position(), False).pending[1] == first[0]


def shown(**values: Any) -> str:
    return json.dumps({"op": "c", "before": None, "after": {"id": 1, "name": "n", **values}})


def test_case_26_a_new_column_without_a_type_says_what_to_declare(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", shown(note="x"))
    with pytest.raises(BadData, match="'note' is new") as caught:
        upstream.observe(Position(), False)
    assert 'upstream.changes.columns = "note' in str(caught.value.hint)


def test_case_26_a_declared_column_is_added_when_it_comes(root: Path) -> None:
    upstream = opened(root, changes={"columns": "note DECIMAL(5,1)"})
    upstream.pin()
    land(root / "changes", "1.json", shown())
    land(
        root / "changes", "2.json", shown(note="1.0"), json.dumps({"op": "d", "before": {"id": 1}, "after": None})
    )
    found = [schema_of(e) for e in upstream.observe(Position(), False).pending]
    assert found == [None, {"id": "long", "name": "string", "note": "decimal(5,1)"}]


def test_case_26_a_column_that_is_no_longer_sent_stops_the_job_when_its_file_is_next(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", shown())
    land(root / "changes", "2.json", json.dumps({"op": "c", "before": None, "after": {"id": 1}}))
    assert [schema_of(e) for e in upstream.observe(Position(), False).pending] == [None, {"id": "long"}]
    with pytest.raises(BadData, match=r"2\.json: the last line with a row: column 'name' is gone"):
        upstream.observe(at("1.json"), False)


def test_a_member_that_differs_from_a_column_only_in_case_is_not_to_be_declared(root: Path) -> None:
    upstream = opened(root)
    land(root / "changes", "1.json", shown(Name="x"))
    with pytest.raises(BadData, match=r"1\.json: column 'Name' differs from 'name' only in case") as refused:
        upstream.observe(upstream.pin().position, False)
    with typed(refused.value) as hint:
        hint.says("correct the change file; it may be replaced as long as it is not applied")
        land(root / "changes", "1.json", shown())
        assert pending(upstream, Position()) == ["1.json"]


def test_a_declared_column_that_differs_from_the_snapshots_only_in_case_is_refused(root: Path) -> None:
    pin = opened(root).pin()
    for begin in (lambda upstream: upstream.pin(), lambda upstream: upstream.restore(pin)):
        with pytest.raises(
            ConfigError, match=r"columns: column 'Name' of 't' differs from 'name' only in case"
        ) as refused:
            begin(opened(root, changes={"columns": "name STRING, Name STRING"}))
        with typed(refused.value) as hint:
            hint.says("leave 'Name' out there")
            begin(opened(root, changes={"columns": "name STRING"}))
