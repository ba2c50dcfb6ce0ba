"""Edge values of each type in partition columns and keys of lakes: written, found again by key, and read exactly.

Read by nothing of ours and without Spark: Delta's log as its protocol describes it, Iceberg by pyiceberg.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_sink import opened as delta
from hint_typed import typed
from postgres_sink import staging
from pyiceberg.table import StaticTable
from sink_epochs import Epochs

from backfill_cli.contracts import Sink, SinkTable
from backfill_cli.errors import BadData
from backfill_cli.model.schema import field
from backfill_cli.sinks.iceberg import IcebergSinkOptions
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = (
    "x", "a b ", " ", "%", "%20", "/", "a/b", "=", "\n", "\x01", "\x7f", "é", "e\u0301", ":", "'", '"', "\\", "#",
    "?", "*", "[", "{x}", "null", "NULL", ".", "..", "😀", "\ufeff", "+", "\t", "-", "_x", ".x", "x" * 120,
)  # fmt: skip
EDGES: dict[str, tuple[str, pa.DataType, Sequence[Any]]] = {
    "s": ("string", pa.string(), TEXTS),
    "b": ("binary", pa.binary(), (b"x", b"\xc3\xa9", b"/", b"\x01", b" ")),
    "d": ("double", pa.float64(), (1.5, math.nan, -0.0, math.inf, -math.inf, 5e-324, 0.1, 1e22)),
    "f": ("float", pa.float32(), (1.5, math.nan, -0.0, math.inf, 3.4028234663852886e38)),
    "at": ("timestamp", pa.timestamp("us", "UTC"), (
        datetime(2024, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
        datetime(1582, 10, 4, 1, 2, 3, 456789, UTC),
    )),
    "local": ("timestamp_ntz", pa.timestamp("us"), (
        datetime(2024, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1582, 10, 4, 1, 2, 3, 456789),
    )),
    "day": ("date", pa.date32(), (date(2024, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4))),
    "m": ("decimal(38,10)", pa.decimal128(38, 10), (
        Decimal("10000.5"), Decimal("-9999999999999999999999999999.0000000001"), Decimal(0), Decimal("1E-10"),
    )),
    "yes": ("boolean", pa.bool_(), (True, False)),
    "n": ("long", pa.int64(), (7, -(2**63), 2**63 - 1)),
}  # fmt: skip
"""Of each type: what all other rows have, then the edges, one a row."""
LOST: Mapping[str, Sequence[Any]] = {
    "s": ("", "__HIVE_DEFAULT_PARTITION__", "\0", "a\0b", "é" * 150, "%" * 90),
    "b": (b"", b"__HIVE_DEFAULT_PARTITION__", b"\0", b"\xff", b"\xc3("),
    "at": (datetime(1, 1, 1, tzinfo=UTC),),
}
"""What Delta cannot hold in a partition. (The time is moved to before the year 1, which Python lacks.)"""
TRANSFORMS = "s, truncate(2, b), bucket(4, b), d, f, hours(at), days(local), months(day), truncate(10, m), yes, n"

Values = dict[str, Any]
Read = Callable[[Path], list[Values]]


def table_of() -> SinkTable:
    fields = [
        field("id", "long"),
        *(field(name, kind) for name, (kind, _, _) in EDGES.items()),
        field("v", "string"),
    ]
    return SinkTable("t", "t", ("id", *EDGES), json.dumps({"type": "struct", "fields": fields}))


def arrow(rows: Sequence[Values]) -> pa.Table:
    kinds = {"id": pa.int64(), **{name: kind for name, (_, kind, _) in EDGES.items()}, "v": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def row(number: int, **special: Any) -> Values:
    return {"id": number, **{name: values[0] for name, (_, _, values) in EDGES.items()}, "v": "old", **special}


def rows() -> list[Values]:
    """Every edge of every type, as many in a row as there are types."""
    return [
        row(n, **{name: values[n % len(values)] for name, (_, _, values) in EDGES.items()})
        for n in range(len(TEXTS))
    ]


def changes(op: str, told: pa.Table) -> pa.Table:
    return told.add_column(0, "_backfill_op", pa.array([op] * told.num_rows, pa.string()))


def _of_text(name: str, text: str | None) -> Any:
    """A partition's value in Delta's log."""
    if not text:
        return None
    read: dict[str, Callable[[str], Any]] = {
        "b": str.encode, "d": float, "f": float, "at": datetime.fromisoformat, "local": datetime.fromisoformat,
        "day": date.fromisoformat, "m": Decimal, "yes": "true".__eq__, "n": int,
    }  # fmt: skip
    return read.get(name, str)(text)


def in_delta(folder: Path) -> list[Values]:
    live: dict[str, Values] = {}
    for file in sorted((folder / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for one in actions:
            if "remove" in one:
                del live[one["remove"]["path"]]
        live |= {one["add"]["path"]: one["add"]["partitionValues"] for one in actions if "add" in one}
    found = []
    for path, parts in live.items():
        told = {name: _of_text(name, text) for name, text in parts.items()}
        found += [told | one for one in pq.ParquetFile(folder / unquote(path)).read().to_pylist()]
    return found


def in_iceberg(folder: Path) -> list[Values]:
    newest = (folder / "metadata" / "version-hint.text").read_text()
    table = StaticTable.from_metadata(str(folder / "metadata" / f"v{newest}.metadata.json"))
    found: list[Values] = table.scan().to_arrow().to_pylist()
    return found


def exactly(found: Sequence[Values]) -> list[str]:
    """Compared as texts: NaN is itself, -0.0 is not 0.0. A decimal's exponent and a zone's class do not count."""
    plain = [{**one, "m": f"{one['m']:.10f}", "at": str(one["at"])} for one in found]
    return sorted(repr(sorted(one.items())) for one in plain)


def in_lake(form: str, spark: "SparkSession", lake: Path) -> tuple[Sink, Read]:
    """The sink, over an empty table with partitions by every column but `id` and `v`."""
    session = spark.newSession()
    columns = ", ".join(["id BIGINT", *(f"{name} {kind}" for name, (kind, _, _) in EDGES.items()), "v STRING"])
    columns = columns.replace("long", "BIGINT")
    if form == "delta":
        parts = ", ".join(EDGES)
        session.sql(f"CREATE TABLE delta.`{lake}/t` ({columns}) USING delta PARTITIONED BY ({parts})")
        return delta(lake, spark), in_delta
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "hadoop",
        ".warehouse": str(lake),
    }.items():
        session.conf.set(f"spark.sql.catalog.edges{key}", value)
    session.sql(f"CREATE TABLE edges.t ({columns}) USING iceberg PARTITIONED BY ({TRANSFORMS})")
    return lake_sink(f"{lake}/{{table}}", spark), in_iceberg


def lake_sink(table: str, spark: "SparkSession") -> IcebergSink:
    sink = IcebergSink(IcebergSinkOptions(table=table))
    sink.use(lambda: spark)
    return sink


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_case_72_edge_values_in_partitions_and_keys_are_exact_updated_and_deleted(
    form: str, spark: "SparkSession", tmp_path: Path, judged: Callable[[int], None]
) -> None:
    sink, read = in_lake(form, spark, tmp_path / "lake")
    given = rows()
    epochs = Epochs(tmp_path / "staging", tables=(table_of(),))
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    sink.commit(staging(epochs, inserts=arrow(given)))
    assert exactly(read(tmp_path / "lake" / "t")) == exactly(given)
    changed = [{**one, "v": "new"} for one in given]
    sink.commit(staging(epochs, changes=changes("U", arrow(changed))))
    assert exactly(read(tmp_path / "lake" / "t")) == exactly(changed)
    half = changed[: len(changed) // 2 * 2 : 2]
    told = [{name: 0.0 if value == 0 and name in "df" else value for name, value in one.items()} for one in half]
    sink.commit(staging(epochs, changes=changes("D", arrow(told))))  # 0 and -0 are one key
    assert exactly(read(tmp_path / "lake" / "t")) == exactly([one for one in changed if one not in half])
    judged(3 * sum(len(values) for _, _, values in EDGES.values()))


def test_a_text_that_is_too_long_for_a_folder_of_iceberg_is_refused_with_its_row(
    spark: "SparkSession", tmp_path: Path, judged: Callable[[int], None]
) -> None:
    """`s=` and 253 bytes are the longest name, as its characters are escaped; other transforms cut values."""
    sink, read = in_lake("iceberg", spark, tmp_path / "lake")
    epochs = Epochs(tmp_path / "staging", tables=(table_of(),))
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    fits = [row(1, s="x" * 253), row(2, s="é" * 42 + "x"), row(3, b=b"x" * 300)]
    sink.commit(staging(epochs, inserts=arrow(fits)))
    before = sink.committed("orders")
    for number, value in enumerate(("x" * 254, "é" * 42 + "xx")):
        told = arrow([row(4), row(77, s=value)])
        epochs.epoch, epochs.folder = 10, epochs.folder / "again"
        with pytest.raises(BadData, match=r"is partitioned by 's', .* \(77, ") as refused:
            sink.commit(staging(epochs, **({"changes": changes("U", told)} if number else {"inserts": told})))
    assert sink.committed("orders") == before
    assert exactly(read(tmp_path / "lake" / "t")) == exactly(fits)
    with typed(refused.value) as hint:
        hint.says("drop the job and start over, into a table that is not partitioned by 's'")
        sink.forget("orders")
        anew = lake_sink(f"{tmp_path}/lake/plain_{{table}}", spark)
        epochs = Epochs(tmp_path / "anew", tables=(table_of(),))
        anew.prepare("orders", epochs.tables, into_existing=False)
        anew.fence("orders", 1)
        anew.commit(staging(epochs, inserts=told))
        assert exactly(read(tmp_path / "lake" / "plain_t")) == exactly(told.to_pylist())
    judged(len(fits) + 2)


def test_a_value_that_delta_cannot_hold_in_a_partition_is_refused_with_its_row(
    spark: "SparkSession", tmp_path: Path, judged: Callable[[int], None]
) -> None:
    sink, read = in_lake("delta", spark, tmp_path / "lake")
    epochs = Epochs(tmp_path / "staging", tables=(table_of(),))
    sink.prepare("orders", epochs.tables, into_existing=False)
    sink.fence("orders", 1)
    sink.commit(staging(epochs, inserts=arrow([row(1)])))
    before = sink.committed("orders")
    for name, values in LOST.items():
        for value in values:
            told = arrow([row(2), row(77, **{name: value})])
            if name == "at":
                early = pa.array([0, -62_135_596_800_000_001], pa.int64()).cast(pa.timestamp("us", "UTC"))
                told = told.set_column(told.column_names.index(name), name, early)
            for made in ({"inserts": told}, {"changes": changes("U", told)})[: 2 if value == values[0] else 1]:
                epochs.epoch, epochs.folder = 10, epochs.folder / "again"
                with pytest.raises(BadData, match=rf"is partitioned by '{name}', .* \(77, ") as refused:
                    sink.commit(staging(epochs, **made))
                assert f"a table that is not partitioned by '{name}'" in str(refused.value.hint)
    assert sink.committed("orders") == before
    assert exactly(read(tmp_path / "lake" / "t")) == exactly([row(1)])
    epochs.epoch, epochs.folder = 10, epochs.folder / "last"
    gone = changes("D", arrow([row(1), row(3, s="")]))
    sink.commit(staging(epochs, inserts=arrow([row(3, s="")]), changes=gone))  # what is netted away is not written
    assert read(tmp_path / "lake" / "t") == []
    judged(sum(map(len, LOST.values())))
