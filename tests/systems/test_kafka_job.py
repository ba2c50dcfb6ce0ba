"""Whole jobs over a real topic into DuckDB: history, live, what cannot be read, all through the engine."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable
from hint_typed import typed
from kafka_topics import Topic, new_topic

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine.loop.run import resume, start
from backfill_cli.engine.verify.fix import fix
from backfill_cli.engine.verify.job import verify
from backfill_cli.errors import BadData, HistoryGone, SinkInUse, StateConflict
from backfill_cli.model.verify import EVERYTHING, VerifyReport
from backfill_cli.view.model import read_jobs

if TYPE_CHECKING:
    from broker import Broker
    from pyspark.sql import SparkSession

CONFIG = """
[job]
name = "orders"
staging = "{folder}/staging"
[upstream]
type = "kafka"
bootstrap_servers = "{bootstrap}"
topic = "{topic}"
value = {{ format = "{form}", schema = "id BIGINT, name STRING" }}
{upstream}
[[tables]]
name = "orders"
{table}
[sink]
type = "duckdb"
path = "{folder}/sink.duckdb"
[barrier]
interval = "100ms"
{more}
"""


NO_RETRY = '[retry]\nlimit = "0s"'
"""What fails in passing fails the job: nothing below may count on a second try."""

HIS = "INSERT INTO _backfill_quarantine_orders VALUES (1)"
"""A stranger's row in a table that has the name of ours."""

ALL = "SELECT kafka_partition, kafka_offset, id, name FROM orders ORDER BY ALL"


class Run:
    """One job over a topic, in this process."""

    def __init__(self, topic: Topic, folder: Path, upstream: str = "", table: str = "", more: str = "") -> None:
        self.folder = folder
        self.catalog = Catalog(folder / "catalog.duckdb")
        self.config = folder / "job.toml"
        self.config.write_text(
            CONFIG.format(
                folder=folder,
                bootstrap=topic.broker.bootstrap,
                topic=topic.name,
                upstream=upstream,
                table=table,
                form="rows" if table else "events",
                more=more,
            )
        )

    def catch_up(self) -> None:
        start(load(self.config), self.catalog, "caught-up", False, None)

    def rows(
        self, sql: str = "SELECT kafka_partition, kafka_offset, id, name FROM orders ORDER BY ALL"
    ) -> list[Any]:
        with duckdb.connect(str(self.folder / "sink.duckdb"), read_only=True) as db:
            return db.execute(sql).fetchall()

    def quarantined(self) -> Mapping[str, int]:
        """As `status` says."""
        (view,) = read_jobs(self.catalog, "orders")
        return view.quarantined

    def verified(self) -> bool:
        return verify("orders", self.catalog).equal

    def fixed(self) -> VerifyReport:
        return fix("orders", self.catalog, EVERYTHING, lambda _: None, lambda _: None)

    def damaged(self, *statements: str) -> None:
        with duckdb.connect(str(self.folder / "sink.duckdb")) as db:
            for sql in statements:
                db.execute(sql)


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    return [{"id": n, "name": f"n{n}"} for n in range(begin, end)]


def test_history_then_live_each_record_once_and_verified(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 2)
    topic.write_json(rows(0, 50), 0)
    topic.write_json(rows(50, 60), 1)
    run = Run(topic, tmp_path)
    run.catch_up()
    first = [(0, n, n, f"n{n}") for n in range(50)] + [(1, n, 50 + n, f"n{50 + n}") for n in range(10)]
    assert run.rows() == first
    topic.write_json(rows(60, 65), 1)
    run.catch_up()
    assert run.rows() == first + [(1, 10 + n, 60 + n, f"n{60 + n}") for n in range(5)]
    assert run.verified()
    assert run.catalog.job("orders").phase == "upstream"


def test_a_partition_that_came_while_stopped_is_read_from_its_first_offset_even_from_latest(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    topic.write_json(rows(0, 5))
    run = Run(topic, tmp_path, 'from = "latest"')
    run.catch_up()
    assert run.rows() == []
    topic.grow(2)
    topic.write_json(rows(5, 8), 1)
    topic.write_json(rows(8, 9), 0)
    run.catch_up()
    assert run.rows("SELECT id FROM orders ORDER BY 1") == [(5,), (6,), (7,), (8,)]
    assert run.verified()


def test_with_a_key_the_latest_record_wins_and_a_tombstone_deletes(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    values = [json.dumps({"id": n % 3, "name": f"v{n}"}).encode() for n in range(6)]
    topic.write([*values, None], keys=[*(str(n % 3) for n in range(6)), "1"])
    run = Run(topic, tmp_path, table='key = ["id"]')
    run.catch_up()
    assert run.rows("SELECT id, name FROM orders ORDER BY 1") == [(0, "v3"), (2, "v5")]
    topic.write([b'{"id": 1, "name": "back"}', None], keys=["1", "2"])
    run.catch_up()
    assert run.rows("SELECT id, name FROM orders ORDER BY 1") == [(0, "v3"), (1, "back")]
    assert run.verified()


def test_a_keyed_topic_fills_a_delta_table(spark: "SparkSession", broker: "Broker", tmp_path: Path) -> None:
    topic = new_topic(broker, 1)
    keys = [n * n % 30 for n in range(90)]
    values = [json.dumps({"id": key, "name": f"v{n}"}).encode() for n, key in enumerate(keys)]
    topic.write([*values, None, None, b'{"id": 1, "name": "back"}'], keys=[*map(str, keys), "1", "4", "1"])
    run = Run(topic, tmp_path, table='key = ["id"]')
    sink = f'type = "delta"\ntable = "{tmp_path}/lake/{{table}}"'
    run.config.write_text(
        run.config.read_text().replace(f'type = "duckdb"\npath = "{tmp_path}/sink.duckdb"', sink)
    )
    run.catch_up()
    latest = {key: f"v{n}" for n, key in enumerate(keys)} | {1: "back"}
    del latest[4]
    held = DeltaTable(str(tmp_path / "lake" / "orders")).to_pyarrow_table()
    assert dict(zip(held["id"].to_pylist(), held["name"].to_pylist(), strict=True)) == latest


def test_a_record_that_cannot_be_read_stops_the_job_and_is_named(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    topic.write([b'{"id": 1, "name": "a"}', b"not json", b'{"id": "x"}'])
    run = Run(topic, tmp_path, more=NO_RETRY)
    with pytest.raises(BadData, match=r"partition 0, offset 1 cannot be read: .*\(and 1 more\)") as caught:
        run.catch_up()
    assert "quarantine" in str(caught.value.hint)
    assert run.catalog.jobs() == ()  # it was seen before there was a job, or a sink


def test_a_record_that_cannot_be_read_stops_a_job_that_follows(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    run = Run(topic, tmp_path, more=NO_RETRY)
    topic.write([b'{"id": 1, "name": "a"}'])
    run.catch_up()
    topic.write([b'{"id": 2, "name": "b"}', b"not json"])
    with pytest.raises(BadData, match=r"partition 0, offset 2 cannot be read"):
        run.catch_up()
    assert run.rows() == [(0, 0, 1, "a")]


@pytest.mark.parametrize("table", [pytest.param("", marks=pytest.mark.long), 'key = ["id"]'])
def test_a_record_that_cannot_be_read_is_set_aside_with_its_bytes_and_the_reason(
    spark: "SparkSession", broker: "Broker", tmp_path: Path, table: str
) -> None:
    topic = new_topic(broker, 1)
    topic.write([b'{"id": 1, "name": "a"}', b"not json", b'{"id": 2, "name": "b"}'])
    run = Run(topic, tmp_path, 'on_error = "quarantine"', table, f'{NO_RETRY}\n[transform]\nwhere = "id > 1"')
    run.catch_up()
    assert run.rows("SELECT id, name FROM orders ORDER BY 1") == [(2, "b")]
    aside = run.rows("SELECT kafka_partition, kafka_offset, value, reason FROM _backfill_quarantine_orders")
    assert [found[:3] for found in aside] == [(0, 1, b"not json")]
    assert aside[0][3]
    assert run.quarantined() == {"_backfill_quarantine_orders": 1}
    topic.write([b"{", b'{"id": 3, "name": "c"}'])
    run.catch_up()
    assert run.rows("SELECT id FROM orders ORDER BY 1") == [(2,), (3,)]
    assert run.rows("SELECT kafka_offset FROM _backfill_quarantine_orders ORDER BY 1") == [(1,), (3,)]
    assert run.quarantined() == {"_backfill_quarantine_orders": 2}
    assert run.verified()
    (run.folder / "catalog.duckdb").unlink()
    resume("orders", run.catalog, load(run.config), None, None)
    assert run.quarantined() == {"_backfill_quarantine_orders": 2}


@pytest.mark.long
def test_events_that_others_changed_are_fixed_by_partition_and_offset_those_set_aside_too(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    topic.write([b'{"id": 1, "name": "a"}', b"not json", b'{"id": 2, "name": "b"}', b'{"id": 3, "name": "c"}'])
    run = Run(topic, tmp_path, 'on_error = "quarantine"', more=NO_RETRY)
    run.catch_up()
    whole = [(0, 0, 1, "a"), (0, 2, 2, "b"), (0, 3, 3, "c")]
    run.damaged(
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders SELECT * FROM orders WHERE id = 2",
        "UPDATE orders SET name = 'z' WHERE id = 3",
        "DELETE FROM _backfill_quarantine_orders",
    )
    report = run.fixed()
    assert report.equal
    assert report.fix is not None
    assert [(t.inserted, t.replaced, t.removed) for t in report.fix.tables] == [(1, 1, 1), (1, 0, 0)]
    assert run.rows() == whole
    assert run.rows("SELECT kafka_offset, value FROM _backfill_quarantine_orders") == [(1, b"not json")]
    topic.write([b'{"id": 4, "name": "d"}'])
    run.catch_up()
    assert run.rows() == [*whole, (0, 4, 4, "d")]


def test_a_surprise_after_plain_records_is_set_aside_in_the_same_epoch(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    run = Run(topic, tmp_path, 'on_error = "quarantine"', more=NO_RETRY)
    topic.write([b'{"id": 1, "name": "a"}'])
    run.catch_up()
    topic.write([b"not json", b'{"id": 2, "name": "b"}'])
    run.catch_up()
    assert run.rows() == [(0, 0, 1, "a"), (0, 2, 2, "b")]
    assert run.rows("SELECT kafka_offset, value FROM _backfill_quarantine_orders") == [(1, b"not json")]
    assert run.verified()


def test_a_job_that_stopped_at_a_bad_record_continues_as_its_hint_says_and_keeps_the_record(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    run = Run(topic, tmp_path, more=NO_RETRY)
    topic.write([b'{"id": 1, "name": "a"}'])
    run.catch_up()
    topic.write([b"not json", b'{"id": 2, "name": "b"}'])
    with pytest.raises(BadData, match=r"offset 1 cannot be read") as caught:
        run.catch_up()
    option = 'on_error = "quarantine"'
    assert f"upstream.{option}" in str(caught.value.hint)
    as_it_was = run.config.read_text()
    run.config.write_text(as_it_was.replace("[[tables]]", f"{option}\n[[tables]]"))
    run.damaged("CREATE TABLE _backfill_quarantine_orders (mine INTEGER)", HIS)
    with pytest.raises(SinkInUse, match="_backfill_quarantine_orders"):
        run.catch_up()
    assert option.replace(" ", "") not in run.catalog.definition("orders").config.replace(" ", "")
    run.damaged("DROP TABLE _backfill_quarantine_orders")
    run.catch_up()
    assert run.rows() == [(0, 0, 1, "a"), (0, 2, 2, "b")]
    aside = "SELECT kafka_offset, value FROM _backfill_quarantine_orders ORDER BY 1"
    assert run.rows(aside) == [(1, b"not json")]
    assert run.quarantined() == {"_backfill_quarantine_orders": 1}
    assert run.verified()
    run.config.write_text(as_it_was)
    topic.write([b'{"id": 3, "name": "c"}', b"{"])
    with pytest.raises(BadData, match=r"offset 4 cannot be read") as caught:
        run.catch_up()
    with typed(caught.value) as hint:
        assert hint.settings() == {"upstream.on_error": "quarantine"}
        run.config.write_text(as_it_was.replace("[[tables]]", f"{option}\n[[tables]]"))
        run.catch_up()
        assert run.rows(aside) == [(1, b"not json"), (4, b"{")]
    assert run.verified()


def test_the_key_stays_whatever_is_selected(spark: "SparkSession", broker: "Broker", tmp_path: Path) -> None:
    topic = new_topic(broker, 1)
    topic.write_json(rows(0, 3))
    run = Run(topic, tmp_path, more='[transform]\nselect = ["upper(name) AS name"]')
    run.catch_up()
    found = run.rows("SELECT column_name FROM duckdb_columns() WHERE table_name = 'orders' ORDER BY column_index")
    assert [name for (name,) in found] == ["kafka_partition", "kafka_offset", "name"]


def test_case_31_retention_past_the_position_stops_the_job_naming_the_offsets(
    spark: "SparkSession", broker: "Broker", tmp_path: Path
) -> None:
    topic = new_topic(broker, 1)
    topic.write_json(rows(0, 10))
    run = Run(topic, tmp_path)
    run.catch_up()
    topic.write_json(rows(10, 20))
    topic.delete_before(15)
    with pytest.raises(HistoryGone, match="offsets 10 to 14"):
        run.catch_up()
    assert run.rows("SELECT count(*) FROM orders") == [(10,)]


def test_case_32_a_topic_recreated_stops_the_job(spark: "SparkSession", broker: "Broker", tmp_path: Path) -> None:
    topic = new_topic(broker, 1)
    topic.write_json(rows(0, 10))
    run = Run(topic, tmp_path)
    run.catch_up()
    topic.recreate()
    topic.write_json(rows(0, 20))
    with pytest.raises(StateConflict, match="topic"):
        run.catch_up()
    assert run.rows("SELECT count(*) FROM orders") == [(10,)]
