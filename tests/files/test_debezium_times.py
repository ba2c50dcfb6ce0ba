"""Dates and times of Debezium's schema block, in a column of each type: the source's value, or refused by name."""

import datetime as dt
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_values import event, failure, logical, opened, read
from oracle.inputs import SEED

from backfill_cli.decode.connect import encoding
from backfill_cli.formats.schemas import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

D, K = "io.debezium.time.", "org.apache.kafka.connect.data."
NAMES = {
    f"{D}Date": ("int32", "days"), f"{K}Date": ("int32", "days"),
    f"{D}Timestamp": ("int64", "ms"), f"{K}Timestamp": ("int64", "ms"),
    f"{D}MicroTimestamp": ("int64", "us"), f"{D}NanoTimestamp": ("int64", "ns"),
    f"{D}ZonedTimestamp": ("string", "zoned"),
    f"{D}Time": ("int32", "count"), f"{D}MicroTime": ("int64", "count"), f"{D}NanoTime": ("int64", "count"),
    f"{K}Time": ("int32", "count"), f"{D}IsoDate": ("string", "iso"), f"{D}IsoTimestamp": ("string", "iso"),
}  # fmt: skip
TYPES = {
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(), "long": pa.int64(), "double": pa.float64(), "boolean": pa.bool_(),
}  # fmt: skip
FITS = {
    ("days", "date"), ("zoned", "timestamp"), ("zoned", "string"), ("count", "long"),
    *((unit, kind) for unit in ("ms", "us", "ns") for kind in ("timestamp", "timestamp_ntz")),
}  # fmt: skip
EACH = [(name, form, kind) for name, (_, form) in NAMES.items() for kind in TYPES]
EPOCH = dt.datetime(1970, 1, 1)


def written(chance: random.Random, form: str, kind: str) -> tuple[Any, Any]:
    """(what the connector writes, the value that the source has)."""
    day = dt.date(1, 1, 1) + dt.timedelta(chance.randrange(3_652_059))
    if form == "days":
        return (day - EPOCH.date()).days, day
    if form == "count":
        return (number := chance.randrange(86_400_000)), number
    at = dt.datetime.combine(day, dt.time()) + dt.timedelta(microseconds=chance.randrange(86_400_000_000))
    if form == "ns":
        at = at.replace(year=chance.randrange(1700, 2250), day=1)
    if form == "ms":
        at = at.replace(microsecond=at.microsecond // 1000 * 1000)
    zoned = at.replace(tzinfo=dt.UTC)
    if form == "zoned":
        text = zoned.isoformat().replace("+00:00", "Z")
        return text, text if kind == "string" else zoned
    micros = (at - EPOCH) // dt.timedelta(microseconds=1)
    return {"ms": micros // 1000, "us": micros, "ns": micros * 1000}[form], zoned if kind == "timestamp" else at


@pytest.mark.parametrize(("name", "form", "kind"), EACH, ids=[f"{n.rsplit('.', 1)[1]}-{k}" for n, _, k in EACH])
def test_a_time_in_a_column_of_another_kind_is_refused_by_name(name: str, form: str, kind: str) -> None:
    told = {"type": NAMES[name][0], "name": name}
    if (form, kind) in FITS:
        assert encoding(told, kind)
        return
    with pytest.raises(Unsupported) as refused:
        encoding(told, kind)
    assert name in str(refused.value)


def test_every_time_that_fits_its_column_is_the_time_of_the_source(tmp_path: Path, spark: "SparkSession") -> None:
    chance = random.Random(SEED)
    fit = {f"c{n}": one for n, one in enumerate(EACH) if one[1:] in FITS}
    told = {c: logical(NAMES[name][0], name) for c, (name, _, _) in fit.items()} | {"id": {"type": "int64"}}
    columns = {"id": pa.int64(), **{c: TYPES[kind] for c, (_, _, kind) in fit.items()}}
    upstream = opened(tmp_path, columns, {"format": "debezium"})
    rows = [{c: written(chance, form, kind) for c, (_, form, kind) in fit.items()} for _ in range(100)]
    lines = [
        event("c", None, {"id": n, **{c: raw for c, (raw, _) in row.items()}}, told) for n, row in enumerate(rows)
    ]
    (tmp_path / "changes" / "1.json").write_text("\n".join(lines))
    expected = [{"id": n, **{c: value for c, (_, value) in row.items()}} for n, row in enumerate(rows)]
    assert read(upstream, spark, *columns) == expected


@pytest.mark.parametrize("value", [{"y": 2026}, "2026-01-01"])
def test_a_date_that_is_no_number_is_named_with_its_column(
    tmp_path: Path, spark: "SparkSession", value: Any
) -> None:
    upstream = opened(tmp_path, {"id": pa.int64(), "day": pa.date32()}, {"format": "debezium"})
    day = {"id": {"type": "int64"}, "day": logical("int32", f"{D}Date")}
    (tmp_path / "changes" / "1.json").write_text(event("c", None, {"id": 1, "day": value}, day))
    told = json.dumps(value, separators=(",", ":"))
    assert f"column 'day': not a whole number of days since 1970: {told}" in failure(upstream, spark).message
