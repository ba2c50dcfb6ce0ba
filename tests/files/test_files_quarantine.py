"""Rows of files that cannot be read: kept once, with file, line, bytes and reason, while the job goes on."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_job import Run
from hint_typed import typed

from backfill_cli.config import load
from backfill_cli.contracts import TableSpec
from backfill_cli.decode.tokens import CUT
from backfill_cli.engine.job.checks import plan
from backfill_cli.engine.staging.quarantine import quarantined, sound
from backfill_cli.engine.verify.fix import fix
from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BadData, ConfigError, UsageError
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.verify import EVERYTHING
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DMS = 'format = "dms", csv = { header = true }'
FEED = 'format = "change-feed"'


def test_rows_of_csv_that_cannot_be_read_are_kept_once(spark: "SparkSession", tmp_path: Path) -> None:
    run = Run(tmp_path, DMS, '[transform]\nwhere = "id < 9"\n')
    (tmp_path / "snapshot" / "a.csv").write_bytes(b'id,v\n1,1\n2,x\n"3",3\n4\n9,9\n')
    (tmp_path / "changes" / "a.csv").write_bytes(b"Op,id,v\nU,1,10\nQ,1,11\nD,3,\nU,5,y\n\nI,6,6\nU,\xff,1\n")
    run.catch_up()
    first = [("a.csv", 3, b"2,x"), ("a.csv", 3, b"Q,1,11"), ("a.csv", 5, b"4"), ("a.csv", 5, b"U,5,y")]
    first.append(("a.csv", 8, b"U,\xff,1"))
    assert run.rows() == [(1, 10), (6, 6)]
    assert sorted(run.kept(), key=lambda one: one[1:]) == first
    assert run.quarantined() == {"_backfill_quarantine_orders": 5}
    (tmp_path / "changes" / "b.csv.gz").write_bytes(gzip.compress(b"Op,id,v\nU,6,z\nU,7,7\n"))
    run.catch_up()
    assert run.rows() == [(1, 10), (6, 6), (7, 7)]
    assert run.quarantined() == {"_backfill_quarantine_orders": 6}
    assert ("b.csv.gz", 2, b"U,6,z") in run.kept()
    assert verify("orders", run.catalog).equal


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_rows_of_a_feed_that_cannot_be_applied_are_kept(spark: "SparkSession", tmp_path: Path, kind: str) -> None:
    run = Run(tmp_path, FEED)
    if kind == "json":
        (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n")
    else:
        text = run.config.read_text()
        run.config.write_text(text.replace('format = "csv", schema = "id BIGINT, v INT"', 'format = "parquet"'))
        held = {"id": pa.array([1, None], pa.int64()), "v": pa.array([1, 2], pa.int32())}
        pq.write_table(pa.table(held), tmp_path / "snapshot" / "s.parquet")
    told = [
        {"_change_type": change, "_commit_version": version, "id": number, "v": number}
        for change, version, number in (("insert", 1, 2), ("odd", 2, 3), ("delete", 3, 1), ("insert", 4, 4))
    ]
    if kind == "json":
        lines = [json.dumps(one).encode() for one in told]
        lines[-1] = lines[-1].replace(b'"v": 4', b'"v": "x"')
        lines += [b'{"id": 5, "_change_ty', b'{"\xff": 1}']
        (tmp_path / "changes" / "a.json").write_bytes(b"\n".join(lines) + b"\n")
        bad = [("a.json", at, lines[at - 1]) for at in (2, 4, 5, 6)]
    else:
        table = pa.table({name: [one[name] for one in told] for name in told[0]})
        table = table.set_column(3, "v", table["v"].cast(pa.int32()))
        pq.write_table(table, tmp_path / "changes" / "a.parquet")
        bad = [("a.parquet", 2, json.dumps(told[1], separators=(",", ":")).encode())]
        bad.append(("s.parquet", 2, b'{"id":null,"v":2}'))
    run.catch_up()
    assert run.rows() == [(2, 2)] + [(4, 4)] * (kind == "parquet")
    assert run.kept() == bad
    assert verify("orders", run.catalog).equal


def envelope(op: str, before: Any, after: Any, **source: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, "source": {"table": "t", **source}}).encode()


UNSENT = "__debezium_unavailable_value"
BAD: tuple[tuple[bytes, str], ...] = (
    (envelope("c", None, {"id": 2, "v": "x"}), "column 'v': not a whole number: \"x\""),
    (envelope("x", None, {"id": 2, "v": 2}), "unknown op x"),
    (b'{"op": "c", "after": {"id": 3', CUT),
    (b'{"op": "c", "after": {"id": 3, "v": 3}, "\xff": 1}', "not UTF-8 text"),
    (b'{"id": 3, "v": 3}', "no 'op': not a Debezium envelope"),
    (envelope("d", None, None), "no 'before', so no key, in an envelope with op d"),
    (envelope("d", {"id": None}, None), "column 'id': the key is NULL"),
    (envelope("c", None, {"id": 1, "v": 9}, table="other"), "a record of another table than 't': other"),
)


def test_lines_of_debezium_that_cannot_be_read_are_kept_in_the_middle_and_at_both_ends(
    spark: "SparkSession", tmp_path: Path
) -> None:
    run = Run(tmp_path, 'format = "debezium"')
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n9,9\n")
    (tmp_path / "changes" / "a.json").write_bytes(envelope("u", None, {"id": 1, "v": 10}) + b"\n")
    run.catch_up()
    bad = [line for line, _ in BAD]
    good = [envelope("c", None, {"id": 4, "v": 4}), envelope("d", {"id": 9}, None)]
    lines = [*bad, good[0], *bad, good[1], *bad]
    (tmp_path / "changes" / "b.json").write_bytes(b"\n\n".join(lines) + b"\n")
    run.catch_up()
    assert run.rows() == [(1, 10), (4, 4)]
    assert run.kept() == [("b.json", 2 * n + 1, line) for n, line in enumerate(lines) if line not in good]
    reasons = run.rows("SELECT value, reason FROM _backfill_quarantine_orders")
    for value, reason in reasons:
        assert dict(BAD)[value] in reason
    (tmp_path / "changes" / "c.json").write_bytes(b"\n".join(bad))
    run.catch_up()
    assert len(run.kept()) == len(reasons) + len(bad)
    assert run.rows() == [(1, 10), (4, 4)]
    assert verify("orders", run.catalog).equal


def in_block(kind: str, payload: bytes) -> bytes:
    """kind: of the column v."""
    fields = [{"field": "id", "type": "int64"}, {"field": "v", "type": kind}]
    images = [{"field": image, "fields": fields} for image in ("before", "after")]
    return json.dumps({"schema": {"fields": images}, "payload": json.loads(payload)}).encode()


def test_a_line_of_debezium_that_is_written_otherwise_than_its_file_is_kept(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Without the option for decimals that a file without schema blocks needs."""
    run = Run(tmp_path, 'format = "debezium"')
    run.config.write_text(run.config.read_text().replace("v INT", "v DECIMAL(5,2)"))
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n")
    row = [envelope("c", None, {"id": id, "v": "7.5"}) for id in range(5)]
    good = [in_block("string", one) for one in row]
    (tmp_path / "changes" / "0.json").write_bytes(good[0])
    run.catch_up()
    lines = [b'{"id": 1}', good[1], in_block("int64", row[2]), row[3], good[4], b"{"]
    (tmp_path / "changes" / "a.json").write_bytes(b"\n".join(lines))
    run.catch_up()
    assert run.rows() == [(id, Decimal("7.50")) for id in (0, 1, 4)]
    reasons = run.rows("SELECT line, reason FROM _backfill_quarantine_orders ORDER BY ALL")
    assert reasons == [
        (1, "no 'op': not a Debezium envelope"),
        (3, "column 'v': its schema block says int64, but it is read as string"),
        (4, "some lines have a schema block and some do not"),
        (6, CUT),
    ]
    (tmp_path / "changes" / "b.json").write_bytes(b'{"id": 1}\n{\n')
    run.catch_up()
    assert len(run.kept()) == len(reasons) + 2


def test_an_applied_line_that_was_kept_does_not_stop_the_job_later(spark: "SparkSession", tmp_path: Path) -> None:
    """The file before is read again where its last transaction goes on in the next one."""
    run = Run(tmp_path, 'format = "debezium"')
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n")
    placed = {"txId": 7, "lsn": 3}
    lines = [envelope("c", None, {"id": 2, "v": "x"}), envelope("c", None, {"id": 3, "v": 3}, **placed)]
    (tmp_path / "changes" / "a.json").write_bytes(b"\n".join(lines))
    run.catch_up()
    run.config.write_text(run.config.read_text().replace('on_error = "quarantine"\n', ""))
    (tmp_path / "changes" / "b.json").write_bytes(envelope("c", None, {"id": 4, "v": 4}, txId=7, lsn=4))
    run.catch_up()
    assert run.rows() == [(1, 1), (3, 3), (4, 4)]
    assert run.kept() == [("a.json", 1, lines[0])]


def test_lines_of_json_in_a_snapshot_that_cannot_be_read_are_kept(spark: "SparkSession", tmp_path: Path) -> None:
    run = Run(tmp_path, DMS)
    told = run.config.read_text().replace('format = "csv"', 'format = "json"')
    run.config.write_text(told)
    (tmp_path / "snapshot" / "a.json").write_bytes(b'{"id": 1\n\n{"id": 2, "v": 2}\n{"id": 3, "v": \xff}\n')
    run.catch_up()
    assert run.rows() == [(2, 2)]
    assert run.kept() == [("a.json", 1, b'{"id": 1'), ("a.json", 4, b'{"id": 3, "v": \xff}')]


def test_a_job_that_stopped_at_a_row_continues_once_rows_are_quarantined(
    spark: "SparkSession", tmp_path: Path
) -> None:
    run = Run(tmp_path, DMS)
    as_asked = run.config.read_text()
    run.config.write_text(as_asked.replace('on_error = "quarantine"\n', ""))
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n")
    run.catch_up()
    (tmp_path / "changes" / "b.csv").write_text("Op,id,v\nU,1,x\nU,2,2\n")
    with pytest.raises(BadData, match=r"b\.csv: line 2 \(of id 1\): column 'v': not exactly an int: x") as caught:
        run.catch_up()
    with typed(caught.value) as hint:
        hint.says("; or put it, and all others that cannot be read, into a quarantine table of the sink")
        hint.says('upstream.on_error = "quarantine"')
        run.config.write_text(as_asked)
        run.catch_up()
    assert run.rows() == [(1, 1), (2, 2)]
    assert run.kept() == [("b.csv", 2, b"U,1,x")]


def test_verify_reads_past_rows_that_were_kept_once_such_rows_stop_the_job_again(
    spark: "SparkSession", tmp_path: Path
) -> None:
    run = Run(tmp_path, DMS)
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n2,x\n")
    (tmp_path / "changes" / "a.csv").write_text("Op,id,v\nU,1,10\nU,3,y\n")
    run.catch_up()
    run.config.write_text(run.config.read_text().replace('on_error = "quarantine"\n', ""))
    run.catch_up()
    assert verify("orders", run.catalog).equal
    (tmp_path / "changes" / "b.csv").write_text("Op,id,v\nU,4,z\n")
    with pytest.raises(BadData, match=r"b\.csv: line 2"):
        run.catch_up()
    with duckdb.connect(str(tmp_path / "sink.duckdb")) as db:
        db.execute("DELETE FROM _backfill_quarantine_orders WHERE value = '2,x'::BLOB")
    assert [(one.table, one.missing) for one in verify("orders", run.catalog).tables if not one.equal] == [
        ("orders.quarantine", 1)
    ]


def test_a_row_of_parquet_is_kept_where_another_file_is_one_that_only_spark_reads(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Not only where whole files are read: a slice of the one was read by row group, without a mark."""
    (tmp_path / "snapshot").mkdir()
    buffers = [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    no_text = pa.Array.from_buffers(pa.string(), 1, buffers)
    texts = pa.concat_arrays([pa.array(["a"]), no_text, pa.array(["a"] * 6)])
    table = pa.table({"id": pa.array(range(8), pa.int64()), "s": texts})
    pq.write_table(table, tmp_path / "snapshot/a.parquet", row_group_size=2)
    older = table.slice(2).replace_schema_metadata({"org.apache.spark.version": "2.4.8"})
    pq.write_table(older, tmp_path / "snapshot/b.parquet")
    told = {"on_error": "quarantine", "snapshot": {"path": str(tmp_path / "snapshot"), "format": "parquet"}}
    upstream = connector.open(connector.options.model_validate(told), [TableSpec("orders", ("id",))])
    upstream.pin()
    reads = [SnapshotRead("orders", "a.parquet", 0, 2), SnapshotRead("orders", "b.parquet", 0, None)]
    found = upstream.scan(spark, "orders", reads)
    assert sorted(row["id"] for row in sound(found).collect()) == [0, *range(2, 8)]
    assert [(Path(row["file"]).name, row["line"]) for row in quarantined(found).collect()] == [("a.parquet", 2)]


def test_a_reason_in_the_words_of_another_version_is_no_difference(spark: "SparkSession", tmp_path: Path) -> None:
    run = Run(tmp_path, DMS)
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n2,x\n3,y\n")
    run.catch_up()
    kept = run.kept()
    with duckdb.connect(str(tmp_path / "sink.duckdb")) as db:
        db.execute("UPDATE _backfill_quarantine_orders SET reason = 'it does not fit'")
    assert verify("orders", run.catalog).equal
    with duckdb.connect(str(tmp_path / "sink.duckdb")) as db:
        db.execute("DELETE FROM _backfill_quarantine_orders WHERE line = 3")
    found = fix("orders", run.catalog, EVERYTHING, lambda _: None, lambda _: None)
    assert found.equal
    assert run.kept() == kept


def test_a_plan_lists_the_table_of_rows_that_cannot_be_read(spark: "SparkSession", tmp_path: Path) -> None:
    run = Run(tmp_path, DMS)
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n")
    report = plan(load(run.config), run.catalog)
    assert [table.target for table in report.tables] == ["orders"]
    assert [(table.target, [name for name, _ in table.columns]) for table in report.side_tables] == [
        ("_backfill_quarantine_orders", ["file", "line", "value", "reason"])
    ]
    run.config.write_text(run.config.read_text().replace('on_error = "quarantine"\n', ""))
    assert plan(load(run.config), run.catalog).side_tables == ()


def test_what_cannot_be_quarantined_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, DMS + ', epoch = "tx"')
    with pytest.raises(ConfigError, match="on_error"):
        load(run.config)


def test_rows_that_a_spool_holds_are_kept_once_it_is_drained(spark: "SparkSession", tmp_path: Path) -> None:
    run = Run(tmp_path, DMS, f'[spool]\npath = "{tmp_path}/spool"\n')
    run.config.write_text(run.config.read_text().replace("[job]\n", '[job]\nstrategy = "chain"\n'))
    (tmp_path / "snapshot" / "a.csv").write_text("id,v\n1,1\n2,x\n")
    (tmp_path / "changes" / "a.csv").write_text("Op,id,v\nU,1,10\nU,y,11\nU,3\nD,4,\n")
    run.catch_up()
    assert run.rows() == [(1, 10)]
    assert run.kept() == [("a.csv", 3, b"U,y,11"), ("a.csv", 4, b"U,3"), ("a.csv", 3, b"2,x")]
    (tmp_path / "changes" / "b.csv").write_text("Op,id,v\nU,,5\nU,5,5\n")
    run.catch_up()
    assert run.rows() == [(1, 10), (5, 5)]
    assert ("b.csv", 2, b"U,,5") in run.kept()


def test_a_table_is_not_named_as_anothers_rows_that_cannot_be_read(tmp_path: Path) -> None:
    run = Run(
        tmp_path, DMS, '[[tables]]\nname = "orders.quarantine"\ntarget = "q"\nkey = ["id"]\nimmutable_key = true\n'
    )
    told = run.config.read_text().replace("/snapshot", "/snapshot/{table}").replace("/changes", "/changes/{table}")
    run.config.write_text(told)
    for folder in ("snapshot", "changes"):
        for table in ("orders", "orders.quarantine"):
            (tmp_path / folder / table).mkdir(parents=True)
            (tmp_path / folder / table / "a.csv").write_text(
                "id,v\n1,1\n" if folder == "snapshot" else "Op,id,v\n"
            )
    with pytest.raises(
        UsageError, match=r"'orders\.quarantine': rows that cannot be read are kept under"
    ) as caught:
        run.catch_up()
    assert not run.catalog.jobs()
    with typed(caught.value) as hint:
        hint.says('set upstream.on_error = "fail"')
        run.config.write_text(told.replace('on_error = "quarantine"\n', 'on_error = "fail"\n'))
        run.catch_up()
        assert run.rows("SELECT id, v FROM q") == [(1, 1)]
    assert verify("orders", run.catalog).equal
