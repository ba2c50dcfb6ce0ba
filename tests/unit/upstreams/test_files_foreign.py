"""Change files that are empty, leave NULLs out, or are something else: read, or named as what they are."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import event, land, opened, parquet

from backfill_cli.errors import BadData
from backfill_cli.model.position import START

FEED = {"format": "change-feed"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    (tmp_path / "changes").mkdir()
    return tmp_path


def columns_at_last(upstream: Any) -> list[str] | None:
    epochs = upstream.observe(START, False).pending
    told = [dict(e.schema)["t"] for e in epochs if e.schema]
    return [f["name"] for f in json.loads(told[-1])["fields"]] if told else None


def feed(version: int, kind: str = "insert", **row: Any) -> str:
    return json.dumps({**row, "_change_type": kind, "_commit_version": version})


def test_case_26_an_added_column_is_seen_behind_many_trailing_deletes(root: Path) -> None:
    upstream = opened(root, changes={"columns": "note STRING"})
    upstream.pin()
    image = json.dumps({"op": "u", "before": None, "after": {"id": 1, "name": "n", "note": "x"}})
    gone = [json.dumps({"op": "d", "before": {"id": n}, "after": None}) for n in range(50)]
    land(root / "changes", "1.json", event(1), image, *gone)
    assert columns_at_last(upstream) == ["id", "name", "note"]


def test_a_json_feed_that_leaves_nulls_out_has_the_tables_columns(root: Path) -> None:
    upstream = opened(root, changes=FEED)
    upstream.pin()
    land(root / "changes", "1.json", feed(1, id=1, name="a"), feed(1, id=2))
    assert columns_at_last(upstream) is None


def test_a_column_that_only_some_line_of_a_json_feed_shows_is_seen(root: Path) -> None:
    upstream = opened(root, changes={**FEED, "columns": "note STRING"})
    upstream.pin()
    land(root / "changes", "1.json", feed(1, id=1), feed(1, id=2, note="x"), feed(1, id=3))
    assert columns_at_last(upstream) == ["id", "name", "note"]


@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize(("first", "second"), [((5, 7), (6, 6)), ((5, 7), (7, 8)), ((5, 5), (5, 5))])
def test_versions_that_part_files_would_apply_out_of_order_are_named(
    root: Path, kind: str, first: tuple[int, int], second: tuple[int, int]
) -> None:
    upstream = opened(root, changes=FEED)
    upstream.pin()
    for name, versions in (("part-00000", first), ("part-00001", second)):
        if kind == "json":
            land(root / "changes", f"{name}.json", *(feed(v, id=v) for v in versions))
            continue
        rows = [{"id": v, "name": "n", "_change_type": "insert", "_commit_version": v} for v in versions]
        pq.write_table(pa.Table.from_pylist(rows), root / "changes" / f"{name}.parquet")
    with pytest.raises(
        BadData, match=rf"part-00001\.{kind} holds version {second[0]}, and a file before it"
    ) as caught:
        upstream.observe(START, False)
    assert "coalesce(1)" in caught.value.hint


def test_a_version_below_one_that_was_applied_is_named_in_the_next_process(root: Path) -> None:
    upstream = opened(root, changes=FEED)
    pin = upstream.pin()
    land(root / "changes", "1.json", feed(5, id=1), feed(7, id=1))
    position = upstream.observe(START, False).latest
    memory = upstream.remembered(position)
    (root / "changes" / "1.json").unlink()
    land(root / "changes", "2.json", feed(6, id=1))
    later = opened(root, changes=FEED)
    later.restore(pin)
    later.recall(memory)
    for one in (upstream, later):
        with pytest.raises(BadData, match="holds version 6, and a file before it version 7"):
            one.observe(position, False)


FOREIGN = {
    "flattened": ({"id": 1, "name": "n", "__deleted": "false", "__op": "u"}, "ExtractNewRecordState"),
    "MongoDB": ({"op": "c", "before": None, "after": '{"_id": 1}', "source": {"collection": "c"}}, "MongoDB"),
    "MongoDB update": ({"op": "u", "updateDescription": {"updatedFields": "{}"}, "after": None}, "MongoDB"),
    "plain appends": ({"id": 1, "name": "n"}, "not a Debezium envelope"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_no_envelope_of_a_table_is_named_as_what_it_is(root: Path, case: str) -> None:
    line, said = FOREIGN[case]
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", json.dumps(line))
    with pytest.raises(BadData, match=said) as caught:
        upstream.observe(START, False)
    assert caught.value.hint


def test_a_folder_of_plain_appends_is_named(root: Path) -> None:
    upstream = opened(root, changes={"format": "dms"})
    upstream.pin()
    pq.write_table(pa.table({"id": [1], "name": ["n"]}), root / "changes" / "1.parquet")
    with pytest.raises(BadData, match="no column 'Op'") as caught:
        upstream.observe(START, False)
    assert "plain appends" in caught.value.hint


@pytest.mark.parametrize("content", ["", "\n", " \n\n"])
def test_an_empty_change_file_is_an_epoch_without_rows(root: Path, content: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    parquet(root / "snapshot" / "a.parquet", schema=schema)
    upstream = opened(root)
    pin = upstream.pin()
    (root / "changes" / "1.json").write_text(content)
    view = upstream.observe(START, False)
    assert len(view.pending) == 1
    assert upstream._log.changes(None, "t", pin.position, view.latest, {}) is None
