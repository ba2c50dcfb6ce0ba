"""Pins: what they hold, what they refuse, what they notice later."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from files_builders import ROW, event, land, opened, parquet
from hint_typed import typed

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BackfillError, BadData, ConfigError, Fatal, UsageError
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.files import connector


def test_splits_are_files_with_their_rows_from_the_footers(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "b.parquet", range(7))
    parquet(tmp_path / "snapshot" / "sub" / "a.parquet", range(3))
    pin = opened(tmp_path).pin()
    assert [(s.table, s.id, s.rows, s.cuttable) for s in pin.splits] == [
        ("t", "b.parquet", 7, True),
        ("t", "sub/a.parquet", 3, True),
    ]
    assert json.loads(pin.splits[0].detail).keys() == {"path", "size", "mtime_ns"}
    assert [(f["name"], f["type"]) for f in json.loads(pin.schema["t"])["fields"]] == [
        ("id", "long"),
        ("name", "string"),
    ]


def test_without_change_files_the_log_starts_at_the_start_and_the_snapshot_is_exact(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    pin = opened(tmp_path).pin()
    assert (pin.position, pin.position_ms, pin.complete_at) == (START, None, None)


def test_without_marks_all_is_replayed_and_complete_with_the_newest_file(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    for name in ("1.json", "2.json"):
        land(tmp_path / "changes", name, event(1))
    pin = opened(tmp_path).pin()
    assert (pin.position, pin.complete_at) == (START, Position.of({"t": "2.json"}))


def test_marks_name_the_loads_begin_and_end(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    for number in range(1, 5):
        land(tmp_path / "changes", f"{number}.json", event(1, ms=number * 100))
    fuzzy = opened(tmp_path, as_of="2.json", complete_at="3.json").pin()
    assert (fuzzy.position, fuzzy.position_ms) == (Position.of({"t": "2.json"}), 200)
    assert fuzzy.complete_at == Position.of({"t": "3.json"})
    assert opened(tmp_path, as_of="2.json").pin().complete_at is None


def test_a_mark_of_several_tables_stands_at_each_tables_last_file_up_to_it(tmp_path: Path) -> None:
    for table, names in (("a", ("1.json", "3.json")), ("b", ("2.json",)), ("c", ("9.json",))):
        parquet(tmp_path / "snapshot" / table / "x.parquet")
        for name in names:
            land(tmp_path / "changes" / table, name, event(1))
    assert opened(tmp_path, ("a", "b", "c"), as_of="3.json").pin().position == Position.of(
        {"a": "3.json", "b": "2.json"}
    )


def test_a_mark_that_is_no_change_file_lists_near_names(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    land(tmp_path / "changes", "0001.json", event(1))
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, as_of="0002.json").pin()
    assert "upstream.snapshot.as_of" in caught.value.message
    assert "0001.json" in str(caught.value.hint)


def test_a_job_may_have_no_change_log(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    options = connector.options.model_validate(
        {"snapshot": {"path": str(tmp_path / "snapshot"), "format": "parquet"}}
    )
    upstream = connector.open(options, [TableSpec("t", ("id",))])
    pin = upstream.pin()
    view = upstream.observe(pin.position, True)
    assert (view.pending, view.latest, pin.complete_at) == ((), START, None)


@pytest.mark.parametrize("there", [False, True])
def test_a_missing_or_empty_path_is_named_with_its_table(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "snapshot").mkdir()
    with pytest.raises(UsageError) as caught:
        opened(tmp_path).pin()
    assert "table 't'" in caught.value.message
    assert str(tmp_path / "snapshot") in caught.value.message


def test_a_missing_folder_of_changes_is_named_and_an_empty_one_is_fine(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    upstream = opened(tmp_path)
    assert upstream.pin().complete_at is None
    (tmp_path / "changes").rmdir()
    with pytest.raises(UsageError, match=r"table 't': folder .*changes does not exist"):
        upstream.pin()


def test_a_key_column_that_is_not_there_is_named_with_near_ones(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet", schema=pa.schema([("Id", pa.int64())]))
    with pytest.raises(UsageError) as caught:
        opened(tmp_path).pin()
    assert "'id'" in caught.value.message
    with typed(caught.value) as hint:
        hint.says("name one of its columns: Id")
        options = connector.options.model_validate(
            {"snapshot": {"path": str(tmp_path / "snapshot"), "format": "parquet"}}
        )
        assert connector.open(options, [TableSpec("t", ("Id",))]).pin().splits


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (pa.schema([("id", pa.int64())]), "'name' is absent"),
        (pa.schema([("id", pa.int32()), ("name", pa.string())]), "'id' is int, but is bigint"),
        (pa.schema([*ROW, ("more", pa.date32())]), "'more' is date, but is absent"),
    ],
)
def test_files_that_differ_name_file_and_column(tmp_path: Path, second: pa.Schema, text: str) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    parquet(tmp_path / "snapshot" / "b.parquet", schema=second)
    with pytest.raises(BadData) as caught:
        opened(tmp_path).pin()
    assert "b.parquet" in caught.value.message
    assert text in caught.value.message


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("id", "_backfill_op"), "'_backfill_op'"),
        (("id", "_backfill_at"), "backfill's own"),
        (("id", "Name", "name"), "'Name' and 'name'"),
    ],
)
def test_names_that_would_be_taken_for_others_are_refused(
    tmp_path: Path, names: tuple[str, ...], text: str
) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet", schema=pa.schema([(name, pa.int64()) for name in names]))
    with pytest.raises(UsageError, match=text):
        opened(tmp_path).pin()


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    (tmp_path / "snapshot" / "b.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(BadData, match=r"b\.parquet"):
        opened(tmp_path).pin()


def test_several_tables_need_a_place_for_their_name(tmp_path: Path) -> None:
    options = connector.options.model_validate({"snapshot": {"path": str(tmp_path), "format": "parquet"}})
    with pytest.raises(ConfigError) as caught:
        connector.open(options, [TableSpec("a", ("id",)), TableSpec("b", ("id",))])
    assert "upstream.snapshot.path" in caught.value.message
    with typed(caught.value) as hint:
        hint.says('"data/{table}/snapshot"')
        for name in ("a", "b"):
            parquet(tmp_path / "data" / name / "snapshot" / "0.parquet")
        path = str(tmp_path / "data/{table}/snapshot")
        options = connector.options.model_validate({"snapshot": {"path": path, "format": "parquet"}})
        upstream = connector.open(options, [TableSpec("a", ("id",)), TableSpec("b", ("id",))])
        assert [split.table for split in upstream.pin().splits] == ["a", "b"]


def pinned(root: Path) -> Path:
    path = parquet(root / "snapshot" / "a.parquet")
    parquet(root / "snapshot" / "b.parquet")
    os.utime(root / "snapshot", (1, 1))
    return path


def removed(path: Path) -> None:
    path.unlink()


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def written_again(path: Path) -> None:
    os.utime(path, (1, 1))


def joined_by_another(path: Path) -> None:
    parquet(path.with_name("c.parquet"))


@pytest.mark.parametrize(
    ("act", "name", "how"),
    [
        (removed, "a.parquet", "is gone"),
        (grown, "a.parquet", "bytes"),
        (written_again, "a.parquet", "was rewritten"),
        (joined_by_another, "c.parquet", "was added"),
    ],
)
def test_case_34_a_snapshot_that_changes_while_it_is_read_is_named(
    tmp_path: Path, act: object, name: str, how: str
) -> None:
    path = pinned(tmp_path)
    first = opened(tmp_path)
    pin = first.pin()
    first.observe(pin.position, True)
    later = opened(tmp_path)
    later.restore(pin)
    assert callable(act)
    act(path)
    for upstream in (first, later):
        with pytest.raises(Fatal) as caught:
            upstream.observe(pin.position, True)
        assert name in caught.value.message
        assert how in caught.value.message
        assert upstream.observe(pin.position, False).identity == pin.identity


def test_another_path_is_another_identity(tmp_path: Path) -> None:
    for place in ("x", "y"):
        parquet(tmp_path / place / "snapshot" / "a.parquet")
    assert opened(tmp_path / "x").pin().identity != opened(tmp_path / "y").pin().identity


def test_a_declared_schema_that_is_no_ddl_is_an_error_of_ours(tmp_path: Path) -> None:
    upstream = of_text(tmp_path, "id,note\n1,a\n", "id BIGINTEGER")
    with pytest.raises(BackfillError, match="BIGINTEGER") as refused:
        upstream.pin()
    with typed(refused.value) as hint:
        hint.says('"id BIGINT, note STRING"')
        assert of_text(tmp_path, "id,note\n1,a\n", "id BIGINT, note STRING").pin().splits


def of_text(root: Path, content: str, ddl: str, kind: str = "csv", **more: Any) -> Any:
    """The upstream of one text file."""
    (root / f"a.{kind}").write_text(content)
    config = {"snapshot": {"path": str(root / f"a.{kind}"), "format": kind, "schema": ddl, **more}}
    return connector.open(connector.options.model_validate(config), [TableSpec("t", ("id",))])


def test_what_csv_cannot_hold_is_a_column_of_text_or_another_format(tmp_path: Path) -> None:
    ddl = "id BIGINT, tags ARRAY<STRING>"
    with pytest.raises(BadData, match="column 'tags': csv cannot hold array<string>") as refused:
        of_text(tmp_path, "id,tags\n1,a\n", ddl).pin()
    with typed(refused.value) as hint:
        hint.says("or declare the column as STRING")
        assert of_text(tmp_path, "id,tags\n1,a\n", "id BIGINT, tags STRING").pin().splits
        hint.says("use parquet or json")
        assert of_text(tmp_path, '{"id": 1, "tags": ["a"]}\n', ddl, "json").pin().splits


def test_columns_of_header_and_schema_that_differ_are_corrected_in_either(tmp_path: Path) -> None:
    def pin(header: str, ddl: str = "id BIGINT, note STRING", **more: Any) -> Any:
        return of_text(tmp_path, f"{header}\n{','.join('1' for _ in header.split(','))}\n", ddl, **more).pin()

    with pytest.raises(BadData, match="column 'noet' is not in") as refused:
        pin("id,noet")
    with typed(refused.value) as hint:
        hint.says("write it there instead of 'note'")
        pin("id,noet", "id BIGINT, noet STRING")
    with pytest.raises(BadData, match="column ' note' is not in") as refused:
        pin("id, note")
    with typed(refused.value) as hint:
        hint.says("write it there instead of 'note'")
        pin("id, note", "id BIGINT, ` note` STRING")
    with pytest.raises(BadData, match="column 'other' is not in") as refused:
        pin("id,note,other")
    with typed(refused.value) as hint:
        hint.says("declare it there")
        pin("id,note,other", "id BIGINT, note STRING, other STRING")
        pin("id,note,other", ignore=hint.settings()["upstream.snapshot.ignore"])
    with pytest.raises(BadData, match=r"column 'note' of .* is in no file's header") as refused:
        pin("id")
    with typed(refused.value) as hint:
        hint.says("or remove it: the headers have id")
        pin("id", "id BIGINT")
    with pytest.raises(BadData, match="duplicate column 'id' in the header") as refused:
        pin("id,id")
    with typed(refused.value) as hint:
        hint.says("give each column a different name")
        pin("id,note")


def deleted_and_put_back(file: Path) -> Callable[[], None]:
    kept = file.read_bytes()
    file.unlink()
    return lambda: void(file.write_bytes(kept))


def rewritten(file: Path) -> Callable[[], None]:
    os.utime(file, ns=(5, 5))
    return lambda: None


def grown(file: Path) -> Callable[[], None]:
    kept = file.read_bytes()
    file.write_bytes(kept + b"more")
    return lambda: void(file.write_bytes(kept))


def void(_: object) -> None:
    """As the shell's `true`."""


@pytest.mark.parametrize("changed", [deleted_and_put_back, rewritten, grown])
def test_a_pinned_file_is_put_back_as_the_hint_says(tmp_path: Path, changed: Any) -> None:
    """Its time, too, which most copies do not keep."""
    file = parquet(tmp_path / "snapshot" / "it's a.parquet")
    pin = opened(tmp_path).pin()
    put_back = changed(file)
    with pytest.raises(Fatal, match="since the snapshot was pinned") as refused:
        look_at(tmp_path, pin)
    put_back()
    with typed(refused.value) as hint:
        hint.run_in_shell("touch")
        look_at(tmp_path, pin)


def test_a_file_that_was_added_to_a_pinned_snapshot_is_removed(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "a.parquet")
    pin = opened(tmp_path).pin()
    more = parquet(tmp_path / "snapshot" / "b.parquet")
    with pytest.raises(Fatal, match="was added since the snapshot was pinned") as refused:
        look_at(tmp_path, pin)
    with typed(refused.value) as hint:
        hint.says("remove it")
        more.unlink()
        look_at(tmp_path, pin)


def look_at(root: Path, pin: Any) -> None:
    """As the next process does before it reads."""
    upstream = opened(root)
    upstream.restore(pin)
    upstream.observe(START, True)
