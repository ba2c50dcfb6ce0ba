"""Builders shared by the tests of the values that come out of files."""

import base64
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.errors import BadData
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


UTC = dt.UTC
FAILURES = (BadData, PySparkException, Py4JError)

ONE = {"id": pa.int64(), "v": pa.string()}


def unscaled(value: Decimal, scale: int) -> str:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * 10 ** (scale + int(exponent)) * (-1 if sign else 1)
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def logical(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "parameters": parameters}


def block(told: dict[str, dict[str, Any]]) -> dict[str, Any]:
    fields = [{**field, "field": name} for name, field in told.items()]
    return {"fields": [{"field": "after", "fields": fields}, {"field": "before", "fields": fields}]}


def event(op: str, before: Any, after: Any, told: dict[str, dict[str, Any]] | None = None) -> str:
    envelope = {"op": op, "before": before, "after": after, "source": {"ts_ms": 5}}
    return json.dumps(envelope if told is None else {"schema": block(told), "payload": envelope})


def opened(
    root: Path, columns: dict[str, pa.DataType], changes: dict[str, Any], key: str = "id", **snapshot: Any
) -> Source:
    (root / "snapshot").mkdir(exist_ok=True)
    (root / "changes").mkdir(exist_ok=True)
    pq.write_table(pa.schema(list(columns.items())).empty_table(), root / "snapshot" / "0.parquet")
    options = connector.options.model_validate(
        {
            "snapshot": {"path": str(root / "snapshot"), "format": "parquet", **snapshot},
            "changes": {"path": str(root / "changes"), **changes},
        }
    )
    return connector.open(options, [TableSpec("t", (key,))])


def changes_of(upstream: Source, spark: "SparkSession") -> "DataFrame":
    pin = upstream.pin()
    view = upstream.observe(pin.position, False)
    schema = dict(pin.schema)["t"]
    for epoch in view.pending:
        schema = dict(epoch.schema).get("t", schema)
    return upstream.changes(spark, "t", pin.position, view.latest, schema).orderBy("_backfill_seq")


def read(upstream: Source, spark: "SparkSession", *columns: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = changes_of(upstream, spark).select(*columns).toArrow().to_pylist()
    return found


def failure(upstream: Source, spark: "SparkSession") -> BadData:
    """What computing the changes fails with."""
    with pytest.raises(FAILURES) as caught:
        changes_of(upstream, spark).collect()
    ours = caught.value if isinstance(caught.value, BadData) else from_spark(caught.value)
    assert isinstance(ours, BadData), caught.value
    return ours


def snapshot_of(root: Path, kind: str, ddl: str, content: str, **more: Any) -> Source:
    (root / f"data.{kind}").write_text(content)
    options = connector.options.model_validate(
        {"snapshot": {"path": str(root / f"data.{kind}"), "format": kind, "schema": ddl, **more}}
    )
    return connector.open(options, [TableSpec("t", ("id",))])


def scanned(upstream: Source, spark: "SparkSession") -> list[dict[str, Any]]:
    reads = [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits]
    found: list[dict[str, Any]] = upstream.scan(spark, "t", reads).orderBy("id").toArrow().to_pylist()
    return found
