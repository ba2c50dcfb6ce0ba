"""Change files as a log: order, times, schemas, and what must not happen to it."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import event, land, opened, parquet
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import BadData, Fatal, HistoryGone, Transient
from backfill_cli.formats.listing import File, place
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.files.changes import side
from backfill_cli.upstreams.files.reading import lines


def at(name: str, table: str = "t") -> Position:
    return Position.of({table: name})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    (tmp_path / "changes").mkdir()
    return tmp_path


def pending(upstream: Any, position: Position) -> list[str]:
    return [str(cursor) for e in upstream.observe(position, False).pending for _, cursor in e.cursors]


def restored(root: Path, pin: Any, memory: str, **changes: Any) -> Any:
    upstream = opened(root, changes=changes or None)
    upstream.restore(pin)
    upstream.recall(memory)
    return upstream


def test_files_are_pending_in_the_order_of_their_names(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("02.json", "10.json", "Z.json", "ü.json"):
        land(root / "changes", name, event(1))
    assert pending(upstream, pin.position) == ["02.json", "10.json", "Z.json", "ü.json"]
    assert pending(upstream, at("10.json")) == ["Z.json", "ü.json"]


def test_case_24_an_older_source_time_keeps_its_files_place_and_time_never_falls(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    land(root / "changes", "1.json", event(1, ms=100), event(1, ms=500))
    land(root / "changes", "2.json", event(1, ms=300))
    land(root / "changes", "3.json", mtime_s=0.7)
    land(root / "changes", "4.json", event(1, ms=600), "null", "")
    assert [e.ms for e in upstream.observe(pin.position, False).pending] == [500, 500, 700, 700]


def test_tables_epochs_are_merged_by_time_each_log_in_its_order(tmp_path: Path) -> None:
    times = {"a": (100, 400, 200), "b": (150, 400)}
    for table, stamps in times.items():
        parquet(tmp_path / "snapshot" / table / "x.parquet")
        for index, ms in enumerate(stamps):
            land(tmp_path / "changes" / table, f"{index}.json", event(1, ms=ms))
    upstream = opened(tmp_path, ("a", "b"))
    upstream.pin()
    found = upstream.observe(Position(), False).pending
    assert [(e.ms, e.cursors[0]) for e in found] == [
        (100, ("a", "0.json")),
        (150, ("b", "0.json")),
        (400, ("a", "1.json")),
        (400, ("a", "2.json")),
        (400, ("b", "1.json")),
    ]


def test_case_46_a_late_name_below_the_position_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["2.json"]
    land(root / "changes", "1.json", event(1))
    with pytest.raises(Fatal, match=r"1\.json came late") as caught:
        upstream.observe(at("2.json"), False)
    assert caught.value.hint.endswith("rename it so that it sorts after that one; otherwise remove it")


def test_a_file_with_a_wrong_value_is_corrected_as_the_hint_says(root: Path) -> None:
    """failures.CHANGES_HINT, in the process that saw it before and in the next."""
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("1.json", "2.json"):
        land(root / "changes", name, event(1))
    assert pending(upstream, Position()) == ["1.json", "2.json"]
    memory = upstream.log.remembered(at("1.json"))
    land(root / "changes", "2.json", event(1), event(2))
    assert pending(upstream, at("1.json")) == ["2.json"]
    after = opened(root)
    after.restore(pin)
    after.recall(memory)
    land(root / "changes", "2.json", event(3))
    assert pending(after, at("1.json")) == ["2.json"]


@pytest.mark.parametrize("way", ["rename", "remove"])
def test_case_46_both_ways_on_from_a_late_name_work(root: Path, way: str) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["2.json"]
    late = land(root / "changes", "1.json", event(2))
    with pytest.raises(Fatal, match="came late"):
        upstream.observe(at("2.json"), False)
    if way == "remove":
        late.unlink()
    else:
        late.rename(root / "changes" / "3.json")
    assert pending(upstream, at("2.json")) == (["3.json"] if way == "rename" else [])


def test_a_name_that_comes_before_others_still_pending_is_not_late(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    for name in ("1.json", "3.json"):
        land(root / "changes", name, event(1))
    assert pending(upstream, Position()) == ["1.json", "3.json"]
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, at("1.json")) == ["2.json", "3.json"]


@pytest.mark.parametrize(("seconds", "late"), [(30, False), (90, True)])
def test_case_46_a_name_that_came_late_while_nobody_looked_is_known_by_its_time(
    root: Path, seconds: int, late: bool
) -> None:
    pin = opened(root).pin()
    land(root / "changes", "2.json", event(1), mtime_s=1_000_000)
    land(root / "changes", "1.json", event(1), mtime_s=1_000_000 + seconds)
    upstream = opened(root)
    upstream.restore(pin)
    if not late:
        assert pending(upstream, at("2.json")) == []
        return
    with pytest.raises(Fatal, match=r"1\.json came late") as caught:
        upstream.observe(at("2.json"), False)
    assert "touch -r" in caught.value.hint


def test_names_before_the_load_are_nobodys_concern(root: Path) -> None:
    land(root / "changes", "2.json", event(1), mtime_s=1_000_000)
    pin = opened(root, as_of="2.json").pin()
    land(root / "changes", "1.json", event(1), mtime_s=2_000_000)
    upstream = opened(root, as_of="2.json")
    upstream.restore(pin)
    assert pending(upstream, pin.position) == []


def test_case_42_a_pending_file_that_vanishes_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    assert pending(upstream, Position()) == ["1.json"]
    path.unlink()
    with pytest.raises(HistoryGone, match=r"1\.json is gone"):
        upstream.observe(Position(), False)


def test_consumed_files_may_go(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["1.json", "2.json"]
    path.unlink()
    assert pending(upstream, at("1.json")) == ["2.json"]


def test_case_46_a_consumed_file_that_grows_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    assert pending(upstream, Position()) == ["1.json"]
    with path.open("a") as file:
        file.write(event(2) + "\n")
    with pytest.raises(Fatal, match="after it was read"):
        upstream.observe(at("1.json"), False)


def as_on_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change files are listed, and looked at, as those of a remote place."""
    monkeypatch.setattr(side, "place", lambda path, table: replace(place(path, table), local=False))


def test_case_46_an_object_that_grows_after_it_was_applied_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_an_object_store(monkeypatch)
    upstream = opened(root)
    pin = upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["1.json", "2.json"]
    assert pending(upstream, at("1.json")) == ["2.json"]
    with path.open("a") as file:
        file.write(event(2) + "\n")
    with pytest.raises(Fatal, match=r"1\.json changed from \d+ to \d+ bytes after it was read") as caught:
        upstream.observe(at("1.json"), False)
    assert "remove this one" in caught.value.hint
    land(root / "changes", "3.json", event(2))
    path.unlink()
    assert pending(restored(root, pin, upstream.remembered(at("1.json"))), at("1.json")) == ["2.json", "3.json"]


def test_an_object_that_is_replaced_is_remembered_as_it_was_when_it_was_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_an_object_store(monkeypatch)
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1, ms=1))
    upstream.observe(Position(), False)
    with path.open("a") as file:
        file.write(event(2, ms=9) + "\n")
    assert [e.ms for e in upstream.observe(Position(), False).pending] == [9]
    assert pending(upstream, at("1.json")) == []
    os.utime(path, (1, 1))
    with pytest.raises(Fatal, match=r"1\.json was rewritten"):
        upstream.observe(at("1.json"), False)


def test_a_pending_file_that_grows_in_place_is_looked_at_again(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1, ms=1))
    os.utime(root / "changes", (1, 1))
    before = upstream.observe(Position(), False).pending[0]
    with path.open("a") as file:
        file.write(event(2, ms=9) + "\n")
    after = upstream.observe(Position(), False).pending[0]
    assert (before.ms, after.ms) == (1, 9)
    assert after.size_bytes > before.size_bytes


@pytest.mark.parametrize("content", ['{"op": "c", "after": {"id"', '{"no": "envelope"}', "[1]", "\x00\x01"])
def test_case_46_a_half_written_or_foreign_file_is_named(root: Path, content: str) -> None:
    upstream = opened(root)
    upstream.pin()
    (root / "changes" / "1.json").write_text(content)
    with pytest.raises(BadData, match=r"1\.json"):
        upstream.observe(Position(), False)


def test_case_46_a_half_written_parquet_file_is_named(root: Path) -> None:
    upstream = opened(root, changes={"format": "dms"})
    upstream.pin()
    (root / "changes" / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadData, match=r"1\.parquet"):
        upstream.observe(Position(), False)


def test_an_idle_upstream_reads_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", event(1))
    os.utime(root / "changes", (1, 1))
    os.utime(root / "snapshot", (1, 1))
    upstream.observe(Position(), True)

    def never(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(os, "scandir", never)
    monkeypatch.setattr(os, "listdir", never)
    monkeypatch.setattr(lines, "last", never)
    assert pending(upstream, at("1.json")) == []


def test_a_look_that_fails_in_the_middle_forgets_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", event(1))
    assert pending(upstream, Position()) == ["1.json"]
    for name in ("2.json", "3.json", "4.json"):
        land(root / "changes", name, event(1))
    (root / "changes" / "1.json").unlink()
    os.utime(root / "changes", (1, 1))
    real, failures = os.stat, [OSError(errno.EIO, "input/output error")]

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).endswith("3.json") and failures:
            raise failures.pop()
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        with pytest.raises(Transient):
            upstream.observe(at("1.json"), False)
        assert not failures
        assert pending(upstream, at("1.json")) == ["2.json", "3.json", "4.json"]


# Schemas


def change_feed(path: Path, **columns: pa.DataType) -> None:
    marks = {"_change_type": pa.string(), "_commit_version": pa.int64()}
    pq.write_table(pa.schema([*marks.items(), *columns.items()]).empty_table(), path)


def schema_of(epoch: Any) -> dict[str, str] | None:
    found = dict(epoch.schema).get("t")
    return None if found is None else {f["name"]: f["type"] for f in json.loads(found)["fields"]}


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


def test_case_26_a_position_that_goes_back_finds_the_schema_change_again(root: Path) -> None:
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
    assert 'upstream.changes.columns = "note' in caught.value.hint


def test_case_26_a_declared_column_is_added_when_it_comes(root: Path) -> None:
    upstream = opened(root, changes={"columns": "note DECIMAL(5,1)"})
    upstream.pin()
    land(root / "changes", "1.json", shown())
    land(
        root / "changes", "2.json", shown(note="1.0"), json.dumps({"op": "d", "before": {"id": 1}, "after": None})
    )
    found = [schema_of(e) for e in upstream.observe(Position(), False).pending]
    assert found == [None, {"id": "long", "name": "string", "note": "decimal(5,1)"}]


def test_case_26_a_column_that_is_no_longer_sent_is_shown_as_dropped(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", json.dumps({"op": "c", "before": None, "after": {"id": 1}}))
    assert [schema_of(e) for e in upstream.observe(Position(), False).pending] == [{"id": "long"}]


# Lines


@given(st.lists(st.sampled_from(["", "null", " ", "a", "b" * 70_000, "ü{}"]), max_size=12), st.booleans())
def test_first_and_last_lines_are_those_that_are_not_blank(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], ended: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "x.json"
    path.write_text("\n".join(content) + ("\n" if ended else ""))
    kept = [line for line in content if line.strip() not in ("", "null")]
    where, file = place(str(path), "t"), File("x.json", str(path), path.stat().st_size, 0)
    assert list(lines.last(where, file, "json")) == kept[::-1]
    assert lines.first(where, file, "json") == (kept[0] if kept else None)


@pytest.mark.parametrize("gone", ["02.json", "10.json"])
@pytest.mark.parametrize("position", [START, at("01.json")])
def test_files_that_waited_and_went_between_two_processes_are_named(
    root: Path, gone: str, position: Position
) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("01.json", "02.json", "10.json"):
        land(root / "changes", name, event(1))
    upstream.observe(pin.position, False)
    memory = upstream.remembered(position)
    land(root / "changes", "11.json", event(2))
    restored(root, pin, memory).observe(position, False)
    (root / "changes" / gone).unlink()
    with pytest.raises(HistoryGone, match=r"1 of \d change files .* up to '10.json', are gone"):
        restored(root, pin, memory).observe(position, False)


def test_files_that_were_applied_may_go_and_more_may_come(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("01.json", "02.json"):
        land(root / "changes", name, event(1))
    upstream.observe(pin.position, False)
    memory = upstream.remembered(at("01.json"))
    (root / "changes" / "01.json").unlink()
    land(root / "changes", "03.json", event(2))
    assert pending(restored(root, pin, memory), at("01.json")) == ["02.json", "03.json"]
