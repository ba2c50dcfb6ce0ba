"""What a folder of files is refused for, and its hint typed: the same folder is then read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import event, land, opened, parquet
from hint_typed import Typed, typed

from backfill_cli.errors import BackfillError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import SAME_PACKAGE

FEED = {"format": "change-feed"}


def of(table: str) -> str:
    return event(1, db="shop", schema="public", table=table)


def feed(version: int) -> str:
    return json.dumps({"id": 1, "name": "n", "_change_type": "insert", "_commit_version": version})


def changes(folder: Path, options: dict[str, Any] | None = None) -> None:
    """A job begins there, and looks at what has landed."""
    upstream = opened(folder, changes=options)
    upstream.pin()
    land(folder / "changes", "9.json", event(1))
    upstream.observe(START, False)


def refused(act: Callable[[], object]) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        act()
    return caught.value


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    (tmp_path / "changes").mkdir()
    return tmp_path


def option(hint: Typed) -> dict[str, Any]:
    """Of the changes, as the hint sets it."""
    return {path.removeprefix("upstream.changes."): value for path, value in hint.settings().items()}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            [json.dumps({"op": "c", "before": None, "after": '{"_id": 1}', "source": {"collection": "c"}})],
            "flatten",
        ),
        ([json.dumps({"id": 1, "name": "n", "__deleted": "false", "__op": "u"})], "only whole envelopes are read"),
        ([event(1) + event(2)], "write one object per line"),
        (["[1]"], "write one object per line"),
    ],
    ids=["documents", "unwrapped", "two on a line", "a list"],
)
def test_a_file_that_is_not_applied_is_written_again(root: Path, lines: list[str], says: str) -> None:
    land(root / "changes", "1.json", *lines)
    with typed(refused(lambda: changes(root))) as hint:
        hint.says(says)
        land(root / "changes", "1.json", event(1))
        changes(root)


def test_plain_appends_are_the_snapshots_folder(root: Path) -> None:
    land(root / "changes", "1.json", json.dumps({"id": 1, "name": "n"}))
    with typed(refused(lambda: changes(root))) as hint:
        hint.says("set their folder as upstream.snapshot.path")
        (root / "changes" / "1.json").rename(root / "appends.json")
        parquet(root / "snapshot" / "b.parquet")
        changes(root)


def test_plain_appends_in_parquet_are_the_snapshots_folder(root: Path) -> None:
    upstream = opened(root, changes={"format": "dms"})
    upstream.pin()
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["n"]})
    pq.write_table(rows, root / "changes" / "1.parquet")
    with typed(refused(lambda: upstream.observe(START, False))) as hint:
        hint.says("set their folder as upstream.snapshot.path")
        (root / "changes" / "1.parquet").rename(root / "snapshot" / "b.parquet")
        again = opened(root, changes={"format": "dms"})
        again.pin()
        assert again.observe(START, False).pending == ()


@pytest.mark.parametrize(
    "first", [("orders_1", "orders_2"), ("orders", "orders")], ids=["several", "another later"]
)
def test_the_tables_that_are_meant_are_named(root: Path, first: tuple[str, str]) -> None:
    for number, table in enumerate(first):
        land(root / "changes", f"{number}.json", of(table))
    later = opened(root)

    def look() -> None:
        later.pin()
        land(root / "changes", "2.json", of("customers"))
        later.observe(START, False)

    with typed(refused(look)) as hint:
        upstream = opened(root, changes=option(hint) if len(set(first)) == 2 else {"tables": ["public.orders"]})
        hint.says("upstream.changes.tables = [")
        upstream.pin()
        assert len(upstream.observe(START, False).pending) >= 2


def test_a_new_column_is_declared(root: Path) -> None:
    line = json.dumps({"id": 1, "name": "n", "note": "x", "_change_type": "insert", "_commit_version": 1})
    land(root / "changes", "1.json", line)

    def look(options: dict[str, Any]) -> None:
        upstream = opened(root, changes={**FEED, **options})
        upstream.pin()
        upstream.observe(START, False)

    with typed(refused(lambda: look({}))) as hint:
        look(option(hint))


def test_a_name_that_shows_no_format_is_read_by_the_option(root: Path) -> None:
    (root / "changes" / "1.data").write_text(feed(1) + "\n")

    def look(options: dict[str, Any]) -> None:
        upstream = opened(root, changes={**FEED, **options})
        upstream.pin()
        upstream.observe(START, False)

    with typed(refused(lambda: look({}))) as hint:
        hint.says('or "json"')
        assert option(hint) == {"file_format": "parquet"}
        look({"file_format": "json"})


def test_only_formats_that_are_read_are_proposed(root: Path) -> None:
    (root / "changes" / "1.data").write_text("U,1,n\n")

    def look(options: dict[str, Any]) -> None:
        upstream = opened(root, changes={"format": "dms", **options})
        upstream.pin()
        upstream.observe(START, False)

    with typed(refused(lambda: look({}))) as hint:
        assert "json" not in hint.hint
        hint.says('or "csv"')
        look({"file_format": "csv"})


@pytest.mark.parametrize("named", [{}, {"op_column": "NAME"}, {"time_column": "Name"}], ids=str)
def test_a_mark_of_a_file_without_a_header_is_named_as_no_column_is(root: Path, named: dict[str, str]) -> None:
    schema = pa.schema([("id", pa.int64()), ("op", pa.string()), ("name", pa.string())])
    parquet(root / "snapshot" / "a.parquet", schema=schema)
    land(root / "changes", "1.csv", "U,7,1,x,n" if "time_column" in named else "U,1,x,n")

    def look(options: dict[str, str]) -> None:
        upstream = opened(root, changes={"format": "dms", **named, **options})
        upstream.pin()
        assert len(upstream.observe(START, False).pending) == 1

    free = {"op_column": "mark"} if "time_column" in named else {}
    with typed(refused(lambda: look(free))) as hint:
        hint.says("without a header, any name will do")
        look({**free, **option(hint)})


def test_a_line_that_cannot_be_read_is_named_before_a_worker_meets_it(root: Path) -> None:
    """Also the first of a folder, which says whose changes these are; of one without an end there may be more."""
    land(root / "changes", "1.json", '{"broken', event(1))
    error = refused(lambda: changes(root))
    assert "1.json: line 1: cut short: not a complete JSON object: {" in error.message
    with typed(error) as hint:
        hint.says("correct the line; or put it")
        assert hint.settings() == {"upstream.on_error": "quarantine"}
        land(root / "changes", "1.json", event(1))
        changes(root)
    (root / "changes" / "9.json").unlink()
    (root / "changes" / "1.json").write_bytes(event(1).encode() + b'\n\n{"op": "c", "aft')
    error = refused(lambda: changes(root))
    assert "1.json: line 3: cut short" in error.message
    with typed(error) as hint:
        hint.says("write it again")
        land(root / "changes", "1.json", event(1))
        changes(root)


def test_a_change_file_without_a_header_has_the_snapshots_columns(root: Path) -> None:
    dms: dict[str, Any] = {"format": "dms", "file_format": "csv"}

    def look(content: str, **csv: Any) -> None:
        land(root / "changes", "1.csv", content)
        upstream = opened(root, changes={**dms, "columns": "note STRING", "csv": csv})
        upstream.pin()
        assert len(upstream.observe(START, False).pending) == 1

    with typed(refused(lambda: look("U,1"))) as hint:
        hint.says("must have the snapshot's columns in the same order")
        look("U,1,n")
    with typed(refused(lambda: look("Op,id,name,note\nU,1,n,x"))) as hint:
        look("Op,id,name,note\nU,1,n,x", header=hint.settings()["upstream.changes.csv.header"])
    with typed(refused(lambda: look('U,1,"a\nb"'))) as hint:
        look('U,1,"a\nb"', multi_line=hint.settings()["upstream.changes.csv.multi_line"])


class Cluster:
    """A session. What its executors know of this package is remembered for it."""

    conf: ClassVar[dict[str, str]] = {}


def test_files_that_only_this_packages_workers_read_need_it_on_the_executors(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Cluster()
    monkeypatch.setitem(arrow_tasks._KNOWN, spark, False)  # type: ignore[misc]
    parquet(root / "snapshot" / "a.parquet", schema=pa.schema([("id", pa.int64()), ("at", pa.timestamp("ns"))]))
    land(root / "csv", "a.csv", "id", "1")
    of_csv = opened(root, path=str(root / "csv"), format="csv", schema="id BIGINT")
    for upstream in (opened(root), of_csv):
        reads = [SnapshotRead("t", split.id, 0, split.rows) for split in upstream.pin().splits]
        error = refused(lambda upstream=upstream, reads=reads: upstream.scan(spark, "t", reads))  # type: ignore[misc]
        assert error.hint == SAME_PACKAGE


def test_names_are_written_with_numbers_of_one_length(root: Path) -> None:
    unclear = [
        (("1.9.json", "1.10.json"), ("1.09.json", "1.10.json"), "like 09 and 10"),
        (
            ("20240101full.json", "20240102x.json"),
            ("20240101-full.json", "20240102-x.json"),
            "from the letters after them",
        ),
    ]
    for names, renamed, asked in unclear:
        folder = root / names[0]
        parquet(folder / "snapshot" / "a.parquet")
        for name in names:
            land(folder / "changes", name, event(1))
        with typed(refused(lambda folder=folder: changes(folder))) as hint:  # type: ignore[misc]
            hint.says(asked)
            for name, new in zip(names, renamed, strict=True):
                (folder / "changes" / name).rename(folder / "changes" / new)
            upstream = opened(folder)
            upstream.pin()
            assert len(upstream.observe(START, False).pending) == 3


def test_a_hole_is_filled_or_the_option_goes(root: Path) -> None:
    for name in ("1.json", "3.json"):
        land(root / "changes", name, event(1))
    names = {"consecutive": "names"}

    def look(options: dict[str, Any]) -> None:
        upstream = opened(root, changes=options)
        upstream.pin()
        upstream.observe(START, False)

    with typed(refused(lambda: look(names))) as hint:
        hint.says("if it never existed, remove upstream.changes.consecutive from the config")
        look({})
        hint.says("wait for it, or restore it")
        land(root / "changes", "2.json", event(1))
        look(names)
    land(root / "changes", "last.json", event(1))
    with typed(refused(lambda: look(names))) as hint:
        hint.says("remove upstream.changes.consecutive from the config, or name the file like the others")
        look({})
        (root / "changes" / "last.json").rename(root / "changes" / "4.json")
        look(names)


def test_versions_are_in_the_order_of_names(root: Path) -> None:
    for name, versions in (("0.json", (5, 7)), ("1.json", (6, 6))):
        land(root / "changes", name, *map(feed, versions))

    def look() -> None:
        upstream = opened(root, changes=FEED)
        upstream.pin()
        upstream.observe(START, False)

    with typed(refused(look)) as hint:
        hint.says("write each version into one file, and name the files in the order of their versions")
        for name, version in (("0.json", 5), ("1.json", 6)):
            land(root / "changes", name, feed(version))
        look()


def test_a_pending_file_that_is_gone_is_put_back(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    file = land(root / "changes", "1.json", event(1))
    upstream.observe(START, False)
    kept, memory = file.read_text(), upstream.remembered(START)
    file.unlink()
    with typed(refused(lambda: upstream.observe(START, False))) as hint:
        hint.says("put it back")
        file.write_text(kept)
        assert len(upstream.observe(START, False).pending) == 1
    file.unlink()
    after = opened(root)
    after.restore(pin)
    after.recall(memory)
    with typed(refused(lambda: after.observe(START, False))) as hint:
        hint.says("put them back")
        file.write_text(kept)
        again = opened(root)
        again.restore(pin)
        again.recall(memory)
        assert len(again.observe(START, False).pending) == 1


def test_a_folder_is_created_and_files_are_named(tmp_path: Path) -> None:
    with typed(refused(lambda: opened(tmp_path).pin())) as hint:
        hint.says("set upstream.snapshot.path to a folder or a glob with files; names that begin with '_'")
        parquet(tmp_path / "snapshot" / "_a.parquet").rename(tmp_path / "snapshot" / "a.parquet")
        opened(tmp_path).pin()
    (tmp_path / "changes").rmdir()
    upstream = opened(tmp_path)
    (tmp_path / "changes").rmdir()
    with typed(refused(upstream.pin)) as hint:
        hint.run_in_shell("mkdir")
        upstream.pin()


def test_a_snapshots_files_have_the_same_columns(root: Path) -> None:
    other = parquet(root / "snapshot" / "b.parquet", schema=pa.schema([("id", pa.int64())]))
    with typed(refused(lambda: opened(root).pin())) as hint:
        hint.says("rewrite that file")
        parquet(other)
        opened(root).pin()


def test_a_mark_is_one_of_the_change_files(root: Path) -> None:
    land(root / "changes", "0001.json", event(1))
    with typed(refused(lambda: opened(root, as_of="0002.json").pin())) as hint:
        hint.says("name one of: 0001.json")
        opened(root, as_of="0001.json").pin()


def test_an_epoch_is_in_one_file_and_later_than_what_was_applied(root: Path) -> None:
    by_tx = {"epoch": "source.tx"}
    land(root / "changes", "1.json", event(1, tx=1), event(1, tx=2))
    land(root / "changes", "2.json", event(1, tx=2))

    def look() -> Any:
        upstream = opened(root, changes=by_tx)
        upstream.pin()
        return upstream, upstream.observe(START, False).pending

    with typed(refused(look)) as hint:
        hint.says("a change file must hold whole epochs, and names must be in the order of their epochs")
        (root / "changes" / "2.json").unlink()
        upstream, pending = look()
    applied = START.of(dict(pending[-1].cursors))
    land(root / "changes", "2.json", event(2, tx=2), event(2, tx=3))
    with typed(refused(lambda: upstream.observe(applied, False))) as hint:
        hint.says("give these changes a later epoch")
        land(root / "changes", "2.json", event(2, tx=3))
        assert len(upstream.observe(applied, False).pending) == 1
