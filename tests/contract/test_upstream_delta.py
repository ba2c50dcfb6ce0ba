"""The Delta upstream against the suite for upstreams, and what it refuses, with tables written by the tests."""

import json
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from delta_world import Change, HandWritten
from deltalake import DeltaTable, write_deltalake
from hint_typed import typed
from upstream_contract import UpstreamContract
from upstream_world import TABLE, Row, World, replayed, row, rows_of

from backfill_cli.config.sections import Transform
from backfill_cli.contracts import SinkTable, Source, TableSpec
from backfill_cli.engine.verify.expected import Expected
from backfill_cli.errors import BackfillError, BadData, ConfigError, Fatal, HistoryGone, UsageError
from backfill_cli.lake.delta.edge import NO_TABLE_HINT
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.delta import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@dataclass
class DeltaWorld:
    table: HandWritten

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        self.table.create(splits)

    def land(self, changes: Sequence[Change]) -> None:
        self.table.change(changes)

    def damage(self) -> None:
        (self.table.path / next(iter(self.table.files))).unlink()

    def open(self, **options: Any) -> Source:
        return opened(self.table.path, **options)


def opened(path: Path, **options: Any) -> Source:
    told = connector.options.model_validate({"table": str(path), **options})
    return connector.open(told, [TableSpec(TABLE, ("id",))])


@pytest.mark.in_turn
class TestDelta(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, tmp_path: Path) -> DeltaWorld:
        return DeltaWorld(HandWritten(tmp_path / "orders", COLUMNS))

    def test_the_start_is_before_everything(self, loaded: World) -> None:
        assert loaded.open().pin().position >= START  # and the log is requested from a version only


@pytest.fixture
def table(tmp_path: Path) -> HandWritten:
    made = HandWritten(tmp_path / "orders", COLUMNS)
    made.create([[row(n, f"n{n}") for n in range(low, low + 10)] for low in (0, 10, 20)])
    return made


LOG_KEPT, FILES_KEPT = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"


def again_begun(table: HandWritten) -> bool:
    """Whether a job that starts over follows the table."""
    upstream, begun = pinned_then(table)
    return upstream.observe(begun, False).latest == begun


def pinned_then(table: HandWritten, **options: Any) -> tuple[Source, Position]:
    upstream = opened(table.path, **options)
    return upstream, upstream.pin().position


# What is refused


def test_a_table_without_a_feed_is_refused_with_the_statement_that_makes_one(tmp_path: Path) -> None:
    table = HandWritten(tmp_path / "orders", COLUMNS, properties={})
    table.create()
    with pytest.raises(UsageError, match="version 0 has no change data feed") as refused:
        opened(table.path).pin()
    with typed(refused.value) as hint:
        hint.says("SET TBLPROPERTIES (delta.enableChangeDataFeed = true), and pin the version it creates")
        table.alter("SET TBLPROPERTIES", **{"delta.enableChangeDataFeed": "true"})
        opened(table.path).pin()


def test_what_is_no_delta_table_and_a_key_that_is_no_column_are_named(table: HandWritten, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing: no Delta table") as refused:
        opened(tmp_path / "nothing").pin()
    with typed(refused.value) as hint:
        hint.says(NO_TABLE_HINT)
        opened(table.path).pin()
    told = connector.options.model_validate({"table": str(table.path)})
    with pytest.raises(
        UsageError, match="no column 'order_id', which is in the key of table 'orders'; columns: id"
    ) as refused:
        connector.open(told, [TableSpec(TABLE, ("order_id",))]).pin()
    with typed(refused.value) as hint:
        hint.says("correct tables.key")
        connector.open(told, [TableSpec(TABLE, ("id",))]).pin()
    both = [TableSpec("a", ("id",)), TableSpec("b", ("id",))]
    with pytest.raises(ConfigError, match=r"has no \{table\}, but the job has 2 tables") as wrong:
        connector.open(told, both)
    with typed(wrong.value) as hint:
        hint.says('use {table} in it, for example "lake/{table}"')
        connector.open(told.model_copy(update={"table": str(tmp_path / "{table}")}), both)


@pytest.mark.parametrize(
    ("operation", "what"),
    [
        ("RESTORE", r"version 2 took it back to an earlier version \(RESTORE\)"),
        ("CREATE OR REPLACE TABLE AS SELECT", "version 2 replaced it"),
        ("CLONE", "version 2 replaced it by a clone"),
    ],
)
def test_a_version_that_is_no_change_of_rows_is_refused_by_its_name(
    table: HandWritten, operation: str, what: str
) -> None:
    upstream, begun = pinned_then(table)
    table.alter(operation)
    with pytest.raises(Fatal, match=what):
        upstream.observe(begun, False)
    with pytest.raises(Fatal, match=what):  # and before a job is created at an older version
        opened(table.path, version=1).pin()


def test_a_feed_that_ends_and_a_table_with_another_id_are_refused(table: HandWritten) -> None:
    upstream, begun = pinned_then(table)
    kept = dict(table.properties)
    table.alter("SET TBLPROPERTIES", **{"delta.enableChangeDataFeed": "false"})
    with pytest.raises(Fatal, match="version 2 turned its change data feed off") as refused:
        upstream.observe(begun, False)
    with typed(refused.value) as hint:
        hint.says("SET TBLPROPERTIES (delta.enableChangeDataFeed = true), then drop the job and start over")
        log = table.path / "_delta_log" / f"{3:020d}.json"
        table.alter("SET TBLPROPERTIES", **{"delta.enableChangeDataFeed": "true"})
        assert again_begun(table)
        log.unlink()
    (table.path / "_delta_log" / f"{2:020d}.json").unlink()
    table.version, table.properties, table.id = 1, kept, "another"
    table.alter("SET TBLPROPERTIES")
    with pytest.raises(Fatal, match="version 2 belongs to another table, with the id another"):
        upstream.observe(begun, False)


def test_a_table_made_anew_in_its_place_is_noticed_while_nothing_comes(table: HandWritten) -> None:
    upstream, begun = pinned_then(table)
    upstream.observe(begun, False)
    shutil.rmtree(table.path)
    again = HandWritten(table.path, COLUMNS, at_ms=1_800_000_000_000)
    again.create([[row(1, "other")]])
    with pytest.raises(Fatal, match=f"the table was replaced: its id is {again.id}"):
        upstream.observe(begun, False)


def test_case_34_a_log_that_was_cleaned_up_past_the_position_is_gone(table: HandWritten) -> None:
    upstream, begun = pinned_then(table)
    for turn in range(3):
        table.change([("insert", None, row(100 + turn, "new"))])
    (table.path / "_delta_log" / f"{2:020d}.json").unlink()
    (table.path / "_delta_log" / "_last_checkpoint").write_text(json.dumps({"version": 4, "size": 1}))
    with pytest.raises(HistoryGone, match="version 2 was removed from its log") as refused:
        upstream.observe(begun, False)
    with typed(refused.value) as hint:
        hint.says("drop the job and start over; delta.logRetentionDuration says how long")
        table.path.rename(table.path.with_name("cleaned"))
        again = HandWritten(table.path, COLUMNS, properties={**table.properties, LOG_KEPT: "interval 90 days"})
        again.create([[row(1, "n1")]])
        assert again_begun(table)


def test_case_34_a_pinned_version_whose_files_vacuum_took_is_refused_before_it_is_read(table: HandWritten) -> None:
    old = next(iter(table.files))
    table.change([("update", row(1, "n1"), row(1, "one"))])
    opened(table.path, version=1).pin()
    (table.path / old).unlink()
    with pytest.raises(HistoryGone, match="version 1 lacks 1 of its files: VACUUM removed data/") as gone:
        opened(table.path, version=1).pin()
    with typed(gone.value) as hint:
        assert hint.settings() == {"upstream.version": "latest"}
        opened(table.path, version="latest").pin()


def test_case_34_files_that_vacuum_took_while_they_were_read_are_told_as_that(
    table: HandWritten, spark: "SparkSession"
) -> None:
    upstream = opened(table.path)
    pin = upstream.pin()
    table.change([("update", row(1, "n1"), row(1, "one"))])
    latest = upstream.observe(pin.position, False).latest
    frame = upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE])
    rows = upstream.scan(spark, TABLE, [SnapshotRead(TABLE, split.id) for split in pin.splits])
    shutil.rmtree(table.path / "_change_data")
    shutil.rmtree(table.path / "data")
    for made in (frame, rows):
        with pytest.raises(Exception, match="FILE_NOT_EXIST") as failed:
            made.toArrow()
        meant = upstream.failure(failed.value)
        assert isinstance(meant, HistoryGone)
        assert str(table.path) in meant.message
        assert "VACUUM removed a file that was still to be read" in meant.message
    with typed(meant) as hint:
        (statement,) = hint.statements()
        shutil.rmtree(table.path)
        HandWritten(table.path, COLUMNS).create([[row(1, "n1")]])
        spark.sql(statement)
        assert again_begun(table)
        assert DeltaTable(str(table.path)).metadata().configuration[FILES_KEPT] == "interval 30 days"


# Versions


def test_versions_without_rows_move_the_job_on_and_columns_that_are_added_are_told(table: HandWritten) -> None:
    upstream, begun = pinned_then(table)
    table.compact()
    wider = COLUMNS.append(pa.field("more", pa.int32()))
    table.alter("ADD COLUMNS", wider)
    table.alter("SET TBLPROPERTIES", **{"delta.logRetentionDuration": "interval 3 days"})
    table.change([("insert", None, {**row(50, "x"), "more": 5})])
    pending = upstream.observe(begun, False).pending
    assert [(dict(e.cursors)[TABLE], e.rows == 0, bool(e.schema)) for e in pending] == [
        (2, True, False),
        (3, True, True),
        (4, True, False),
        (5, False, False),
    ]
    assert [f["name"] for f in json.loads(pending[1].schema[0][1])["fields"]] == ["id", "name", "more"]


def test_case_26_many_versions_are_read_at_once_each_with_the_columns_of_the_last(
    table: HandWritten, spark: "SparkSession"
) -> None:
    upstream, begun = pinned_then(table)
    table.change([("update", row(1, "n1"), row(1, "one"))])
    table.alter("ADD COLUMNS", COLUMNS.append(pa.field("more", pa.int32())))
    table.change([("update", row(1, "one"), {**row(1, "uno"), "more": 1}), ("delete", row(2, "n2"), None)])
    view = upstream.observe(begun, False)
    (schema,) = [text for e in view.pending for _, text in e.schema]
    frame = upstream.changes(spark, TABLE, begun, view.latest, schema)
    assert replayed(frame, [row(1, "n1"), row(2, "n2")]) == [row(1, "uno")]
    assert sorted(r["more"] for r in frame.where("_backfill_op = 'U'").toArrow().to_pylist() if r["more"]) == [1]


def test_verify_reads_the_rows_of_the_version_and_names_keys_that_stand_twice(
    table: HandWritten, spark: "SparkSession"
) -> None:
    upstream = opened(table.path)
    pin = upstream.pin()
    tables = (SimpleNamespace(name=TABLE),)
    config = SimpleNamespace(tables=tables, transform_of=lambda _: Transform())
    held = Expected(spark, upstream, config, pin)  # type: ignore[arg-type]
    sink = SinkTable(TABLE, TABLE, ("id",), pin.schema[TABLE])
    table.change([("update", row(1, "n1"), row(1, "one")), ("delete", row(2, "n2"), None)])
    at = upstream.observe(pin.position, False).latest
    once = Checkpoint(1, 0, 1, "a", "{}", Phase.UPSTREAM, at, schemas=pin.schema)
    assert rows_of(held(sink, once)) == sorted(table.rows, key=lambda one: int(one["id"]))
    write_deltalake(str(table.path), pa.Table.from_pylist([row(7, "again")], COLUMNS), mode="append")
    twice = replace(once, position=upstream.observe(once.position, False).latest)
    with pytest.raises(BadData, match=r"not unique in the upstream at this checkpoint: \(7\) 2 times"):
        held(sink, twice)
    assert len(rows_of(held(sink, once))) == 29


@pytest.mark.parametrize("version", [1, "1", "2023-11-14T22:13:22.5Z"])
def test_a_version_is_pinned_by_number_or_time(table: HandWritten, spark: "SparkSession", version: Any) -> None:
    table.change([("update", row(1, "n1"), row(1, "one"))])
    upstream = opened(table.path, version=version)
    pin = upstream.pin()
    assert (dict(pin.position), pin.position_ms) == ({TABLE: 1}, 1_700_000_002_000)
    reads = [SnapshotRead(TABLE, split.id) for split in pin.splits]
    assert rows_of(upstream.scan(spark, TABLE, reads))[1] == row(1, "n1")
    assert upstream.observe(pin.position, True).latest == Position.of({TABLE: 2})


def test_a_time_before_the_table_was_there_is_refused(table: HandWritten) -> None:
    with pytest.raises(
        UsageError, match=r"no version is as old as 2001-01-01T00:00:00Z, the oldest is 0"
    ) as early:
        opened(table.path, version="2001-01-01T00:00:00Z").pin()
    with typed(early.value) as hint:
        hint.says("name a later time")
        assert dict(opened(table.path, version="2023-11-15T00:00:00Z").pin().position) == {TABLE: 1}


@pytest.mark.parametrize("version", ["newest", "2026-11-01 12:00:00", -1])
def test_a_version_that_is_none_is_refused(version: Any) -> None:
    with pytest.raises(ValueError, match=r"version"):
        connector.options.model_validate({"table": "lake/orders", "version": version})


def test_null_keys_are_read_with_the_first_range(tmp_path: Path, spark: "SparkSession") -> None:
    table = HandWritten(tmp_path / "orders", COLUMNS)
    table.create([[row(5, "a"), {"id": None, "name": "nobody"}], [row(1_000_000_000, "b")]])
    upstream = opened(table.path)
    pin = upstream.pin()
    reads = upstream.closed(TABLE, [SnapshotRead(TABLE, split.id, limit_rows=1) for split in pin.splits])
    assert [read.up_to is None for read in reads] == [False]
    found = upstream.scan(spark, TABLE, reads).toArrow().to_pylist()
    assert {"id": None, "name": "nobody", "_backfill_read": 0} in found


def test_retention_is_told_before_a_start(table: HandWritten) -> None:
    table.alter("SET TBLPROPERTIES", **{"delta.deletedFileRetentionDuration": "interval 2 days"})
    upstream = opened(table.path)
    upstream.pin()
    (told,) = upstream.extras.warnings()
    assert "older than interval 2 days; its log is kept for interval 30 days" in told


def test_an_upstream_error_is_ours(table: HandWritten) -> None:
    (table.path / "_delta_log" / f"{1:020d}.json").write_text("{")
    with pytest.raises(BackfillError):
        opened(table.path).pin()


@pytest.mark.parametrize(
    ("damage", "said", "way_on"),
    [
        (lambda text: text.splitlines()[0], "its log cannot be read", "or restore _delta_log from a copy"),
        (
            lambda text: text.replace(
                '"minReaderVersion": 1, "minWriterVersion": 4',
                '"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x"]',
            ),
            "a feature of this table is not supported: .*'x'",
            "or use a copy of the table without it",
        ),
    ],
)
def test_a_table_that_the_library_cannot_read_is_read_from_a_copy_of_its_log(
    table: HandWritten, damage: Callable[[str], str], said: str, way_on: str
) -> None:
    log = table.path / "_delta_log" / f"{0:020d}.json"
    whole = log.read_text()
    log.write_text(damage(whole) + "\n")
    with pytest.raises(Fatal, match=said) as refused:
        opened(table.path).pin()
    with typed(refused.value) as hint:
        hint.says(way_on)
        log.write_text(whole)
        assert again_begun(table)


def test_a_table_of_delta_needs_its_package(table: HandWritten, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "deltalake", None)
        with pytest.raises(UsageError, match="not installed") as refused:
            opened(table.path)
    with typed(refused.value) as hint:
        hint.says("pip install 'backfill-cli[delta]'")
        named = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
        assert any(one.startswith("deltalake") for one in named["project"]["optional-dependencies"]["delta"])
        assert opened(table.path)
