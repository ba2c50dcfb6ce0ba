"""A snapshot of Parquet files and changes in a Kafka topic, for the suites of both as one upstream."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from kafka_topics import Topic
from upstream_world import TABLE, Row, replayed, rows_of, whole

from backfill_cli import registry
from backfill_cli.contracts import Source, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Change = tuple[str, Row | None, Row | None]
COLUMNS = {"id": "int64", "name": "string"}


def record(op: str, before: Row | None, after: Row | None, block: bool = False) -> bytes:
    """An envelope as Debezium writes it."""
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": TABLE, "ts_ms": 5}
    told = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 6}
    if not block:
        return json.dumps(told).encode()
    fields = [{"field": name, "type": kind, "optional": name != "id"} for name, kind in COLUMNS.items()]
    parts = [{"type": "struct", "fields": fields, "field": side} for side in ("before", "after")]
    return json.dumps({"schema": {"type": "struct", "fields": parts}, "payload": told}).encode()


@dataclass
class TwoSystems:
    """Parquet files below `root`, and a topic of two partitions, each key always in the same one."""

    root: Path
    topic: Topic
    form: str = "debezium"
    block: bool = False
    opened: list[Any] = field(default_factory=list)

    def load(self, splits: Sequence[Sequence[Row]], schema: pa.Schema | None = None) -> None:
        folder = self.root / "snapshot"
        folder.mkdir(exist_ok=True)
        schema = schema or pa.schema([("id", pa.int64()), ("name", pa.string())])
        for index, rows in enumerate(splits):
            pq.write_table(pa.Table.from_pylist(list(rows), schema), folder / f"{index}.parquet", row_group_size=7)

    def damage(self) -> None:
        (self.root / "snapshot" / "1.parquet").unlink()

    def land(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._write(*change)
        for upstream in self.opened:
            upstream.observe(upstream.begun, False)

    def _write(self, op: str, before: Row | None, after: Row | None) -> None:
        moved = before is not None and after is not None and before["id"] != after["id"]
        keys = [row["id"] for row in ((before, after) if moved else (after or before,)) if row is not None]
        for key in keys:
            if self.form == "debezium":  # of a key change: a delete, its tombstone, a create
                gone = op == "delete" or (moved and key == keys[0])
                op_now = "d" if gone else "c" if moved or op == "insert" else "u"
                values: list[bytes | None] = [
                    record(op_now, before if gone else None, None if gone else after, self.block)
                ]
                values += [None] if gone else []
            else:
                values = [None if after is None or key != after["id"] else json.dumps(after).encode()]
            self.topic.write(values, abs(key) % 2, [json.dumps({"id": key}).encode()] * len(values))

    def open(self, **changes: Any) -> Source:
        connector = registry.two_systems("files", "kafka")
        value = {"format": self.form, **changes.pop("value", {})}
        told = {
            "snapshot": {"type": "files", "path": str(self.root / "snapshot"), "format": "parquet"},
            "changes": {
                "type": "kafka",
                "bootstrap_servers": self.topic.broker.bootstrap,
                "topic": self.topic.name,
                "from": "earliest",
                "value": value,
                **changes,
            },
        }
        return connector.open(connector.options.model_validate(told), [TableSpec(TABLE, ("id",))])


class Opened:
    """An upstream that observes its log each time something lands, so that each observation is an epoch."""

    def __init__(self, world: TwoSystems, upstream: Source) -> None:
        self._world, self._upstream = world, upstream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._upstream, name)

    def pin(self) -> Any:
        pin = self._upstream.pin()
        self.begun = pin.position
        self._world.opened.append(self)
        return pin


@dataclass
class Watched(TwoSystems):
    def open(self, **changes: Any) -> Any:
        return Opened(self, super().open(**changes))


def after_snapshot(upstream: Source, spark: "SparkSession") -> list[Row]:
    """The snapshot and everything after it, replayed."""
    pin = upstream.pin()
    held = rows_of(upstream.scan(spark, TABLE, whole(upstream, pin)))
    latest = upstream.observe(pin.position, True).latest
    return replayed(upstream.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]), held)
