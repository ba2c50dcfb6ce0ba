"""The Iceberg sink and upstream with tables of a REST catalog: metadata by HTTP, commits that it checks."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import rest_catalog
from sink_contract import Epochs, a_table, rows

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import Held
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.sinks.iceberg import IcebergSinkOptions, connector, writing
from backfill_cli.sinks.iceberg.sink import IcebergSink
from backfill_cli.upstreams.iceberg import connector as upstreams
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(spark: "SparkSession", tmp_path: Path) -> "Iterator[SparkSession]":
    with rest_catalog.running(tmp_path / "house") as uri:
        made = spark.newSession()
        told = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": uri}
        for name, value in told.items():
            made.conf.set(f"spark.sql.catalog.rest{name}", value)
        yield made


def opened(session: "SparkSession") -> IcebergSink:
    sink = connector.open(IcebergSinkOptions(table="rest.db.{table}"))
    assert isinstance(sink, IcebergSink)
    sink.use(lambda: session)
    return sink


def test_a_table_is_made_filled_followed_and_kept_from_a_runner_that_was_taken_over_from(
    session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, epochs = opened(session), Epochs(tmp_path / "staging")
    assert (sink.owner("orders"), sink.committed("orders")) == (None, {})
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))

    told = upstreams.options.model_validate({"table": "rest.db.orders"})
    upstream = upstreams.open(told, [TableSpec("orders", ("id",))])
    assert isinstance(upstream, IcebergUpstream)
    upstream.use(lambda: session)
    upstream.pin()
    upstream.create("rest")
    pin = upstream.pin()
    scan = upstream.scan(session, "orders", [SnapshotRead(s.table, s.id) for s in pin.splits])
    assert sorted(scan.select("id").toArrow().column("id").to_pylist()) == [1, 2]

    sink.commit(epochs.next(upserts=rows((2, "B")), deletes=[1]))
    moved = upstream.observe(pin.position, True).latest
    changes = upstream.changes(session, "orders", pin.position, moved, pin.schema["orders"])
    found = changes.select("_backfill_op", "id", "name").toArrow().to_pylist()
    assert sorted((one["_backfill_op"], one["id"], one["name"]) for one in found) == [
        ("D", 1, "a"),
        ("D", 2, "b"),
        ("U", 2, "B"),
    ]
    upstream.release(pin)

    late, left = epochs.next(upserts=rows((2, "late"))), ["sink-before-commit"]

    def overtaken(point: str) -> None:
        if point in left:
            left.remove(point)
            opened(session).fence("orders", 2)

    monkeypatch.setattr(writing, "hit", overtaken)
    with pytest.raises(Held, match="was taken over by another runner"):
        sink.commit(late)
    again = opened(session)
    assert again.committed("orders") == {"orders": Marker(20, 2, "a20")}
    saved = again.saved("orders")
    assert saved is not None
    assert saved.checkpoint.epoch == 20
    assert session.sql("SELECT * FROM rest.db.orders").toArrow().to_pylist() == rows((2, "B"))
    again.drop((a_table(),))
    again.forget("orders")
    assert again.committed("orders") == {}
