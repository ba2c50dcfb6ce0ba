"""Change files that are empty, leave NULLs out, or are something else: read, or named as what they are."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import event, land, opened, parquet
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.decode.source_table import Known
from backfill_cli.errors import BadData, ConfigError
from backfill_cli.model.position import START
from backfill_cli.upstreams.files import connector

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
        BadData, match=rf"part-00001\.{kind} holds version {second[0]}, but an earlier file"
    ) as caught:
        upstream.observe(START, False)
    assert "coalesce(1)" in str(caught.value.hint)


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
        with pytest.raises(BadData, match="holds version 6, but an earlier file holds version 7"):
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
    assert "plain appends" in str(caught.value.hint)


@pytest.mark.parametrize("content", ["", "\n", " \n\n"])
def test_an_empty_change_file_is_an_epoch_without_rows(root: Path, content: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2))])
    parquet(root / "snapshot" / "a.parquet", schema=schema)
    upstream = opened(root)
    pin = upstream.pin()
    (root / "changes" / "1.json").write_text(content)
    view = upstream.observe(START, False)
    assert len(view.pending) == 1
    assert upstream.log._log.changes(None, "t", pin.position, view.latest, {}) is None


# Lines of another table


def of(table: str, key: int = 1, **more: Any) -> str:
    return event(key, db="shop", schema="public", table=table, **more)


def test_a_file_of_another_table_is_named_with_the_option(root: Path) -> None:
    upstream = opened(root)
    land(root / "changes", "1.json", of("orders"))
    upstream.pin()
    land(root / "changes", "2.json", of("customers"))
    said = r"2\.json: line 1: a record of another table than 'shop\.public\.orders': shop\.public\.customers: "
    with pytest.raises(BadData, match=said) as caught:
        upstream.observe(START, False)
    assert "upstream.changes.tables" in str(caught.value.hint)


def test_a_file_that_names_no_table_says_so(root: Path) -> None:
    upstream = opened(root)
    land(root / "changes", "1.json", of("orders"))
    upstream.pin()
    land(root / "changes", "2.json", event(1))
    with pytest.raises(BadData, match="its source names no table"):
        upstream.observe(START, False)


@pytest.mark.parametrize(("table", "refused"), [("t", False), ("orders", True)])
def test_in_a_folder_that_was_empty_lines_are_of_the_configured_table(
    root: Path, table: str, refused: bool
) -> None:
    upstream = opened(root)
    made = upstream.pin()
    land(root / "changes", "1.json", of(table))
    later = opened(root)
    later.restore(made)
    for one in (upstream, later):
        if refused:
            with pytest.raises(BadData, match="a record of another table than 't'"):
                one.observe(START, False)
        else:
            assert len(one.observe(START, False).pending) == 1


def test_a_folder_named_as_a_topic_says_whose_lines_it_holds(tmp_path: Path) -> None:
    folder = tmp_path / "server.public.orders"
    parquet(tmp_path / "snapshot" / "a.parquet")
    folder.mkdir()
    upstream = opened(tmp_path, changes={"path": str(folder)})
    upstream.pin()
    land(folder, "1.json", event(1, schema="public", table="orders"))
    assert len(upstream.observe(START, False).pending) == 1


def test_files_of_several_tables_are_refused_until_the_options_name_those_meant(root: Path) -> None:
    land(root / "changes", "1.json", of("orders_1"))
    land(root / "changes", "2.json", of("orders_2"))
    with pytest.raises(ConfigError, match=r"shop\.public\.orders_1, shop\.public\.orders_2") as caught:
        opened(root).pin()
    assert 'upstream.changes.tables = ["shop.public.orders_1"]' in str(caught.value.hint)
    upstream = opened(root, changes={"tables": ["public.orders_*"]})
    upstream.pin()
    assert len(upstream.observe(START, False).pending) == 2


def test_columns_of_a_table_that_is_left_out_are_none_of_ours(root: Path) -> None:
    other = json.dumps({"op": "c", "after": {"email": "x"}, "source": {"table": "customers"}})
    upstream = opened(root, changes={"tables": ["orders"]})
    upstream.pin()
    land(root / "changes", "1.json", of("orders"), other)
    assert columns_at_last(upstream) is None


def test_a_job_from_before_lines_were_checked_goes_on_and_is_the_same_job(root: Path) -> None:
    made = opened(root).pin()
    told = json.loads(made.identity)
    assert told.pop("sources") == {"t": None}
    old = replace(made, identity=json.dumps(told, sort_keys=True))
    land(root / "changes", "1.json", of("orders"), of("customers"))
    upstream = opened(root)
    upstream.restore(old)
    seen = upstream.observe(START, False)
    assert (len(seen.pending), seen.identity) == (1, old.identity)


def test_the_tables_meant_may_be_named_while_the_job_lives() -> None:
    options = {"snapshot": {"path": "s", "format": "parquet"}, "changes": {"path": "c", "format": "debezium"}}
    plain = connector.options.model_validate(options)
    named = connector.options.model_validate({**options, "changes": {**options["changes"], "tables": ["a"]}})
    assert connector.fingerprint(plain) == connector.fingerprint(named)


WORDS = st.text("ab.*", max_size=4)


@given(st.lists(st.sampled_from(["a", "b", "a.b", "*", "a*", "b.a*"]), min_size=1, max_size=3), WORDS)
def test_a_table_is_read_when_the_end_of_its_name_fits(tables: list[str], name: str) -> None:
    parts = name.split(".")
    ends = [parts[-count:] for count in range(1, len(parts) + 1)]
    fits = any(
        len(wanted.split(".")) == len(end) and all(map(fnmatchcase, end, wanted.split(".")))
        for wanted in tables
        for end in ends
    )
    assert Known(tuple(tables)).reads(name) == (fits or name == "")
