"""Parquet of other writers: what Spark's reader takes for bytes, cuts or refuses is read exactly, or named."""

import base64
import datetime as dt
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.errors import BadData
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Parquet's own test file repeated_no_annotation.parquet: its footer counts no rows, its row group six.
NO_COUNT = (
    "c-oy(yGjF55S_hy6GGS`2(u)RVu{HmLJXUY8?#~&trUX<(GSRGSF)Iwc}PkT3$YLjv9QwC!Vj>riXeW0tsmeoIJ-$>5sSbahPlj~"
    "b7r`;t%Cw`)KRaZg0KW20RSV&1WpJM!UP12Vl+oxF$^QU$nw>MiE}B5ERlg&BF;PqK~>bTIu?f_LL(e2SgB$pApTaC_k8kqb7Pwl"
    "+?)(A{e1NFGJ&Z;3R5|vp9usm-h3bO?K6|_Wbwt4$OEym(rb1*?*6E4yZu2ZD8ikfA`db3QKAs{OuR~gk2I#MlzbolQq6AL^_OaQ"
    "ZLj5$vWD6m<sV7r;*%#)nJdgsyp9vdUPu(;nu`w_rn|Iu_-H_uI29T2F9arw|DiwzCXY{v{60>7vrPb%42uWs82}X$$;9Tr2Ve9+"
    "i|waA$f^R_-Cn(aI&z1r{egByGhVl&>G@(_*RuA=YdM;|W;WdQhFv!bmUV0xj#V^DR-<6*PPtw#T7^=hWZ9;>0tR`h(U1HEXIF&R"
)
UUIDS = [uuid.UUID("00000000-0000-0000-0000-0000000000ff"), None, uuid.UUID(int=2**128 - 1)]
TEXTS = [None if one is None else str(one) for one in UUIDS]


def opened(root: Path) -> Source:
    options = {"snapshot": {"path": str(root / "*.parquet"), "format": "parquet"}}
    return connector.open(connector.options.model_validate(options), [TableSpec("t", ("id",))])


def by_every_way(upstream: Source, spark: "SparkSession") -> Iterator[list[dict[str, Any]]]:
    """The rows as Spark gets them, whole and by slices, and as workers make them."""
    splits = upstream.pin().splits
    whole = [SnapshotRead("t", s.id, 0, None) for s in splits]
    cut = [SnapshotRead("t", s.id, n, n + 1) for s in splits for n in range(s.rows or 0)]
    for reads in (whole, cut):
        yield upstream.scan(spark, "t", reads).orderBy("id").toArrow().to_pylist()
    tasks = upstream.batches("t", whole, 2)
    assert tasks is not None
    made = [row for part in tasks.parts for piece in part for b in tasks.make(piece.what) for row in b.to_pylist()]
    yield sorted(made, key=lambda row: row["id"])


def test_rows_that_a_footer_does_not_count_are_read(tmp_path: Path, spark: "SparkSession") -> None:
    (tmp_path / "a.parquet").write_bytes(zlib.decompress(base64.b85decode(NO_COUNT)))
    upstream = opened(tmp_path)
    assert [split.rows for split in upstream.pin().splits] == [6]
    wanted = pq.read_table(tmp_path / "a.parquet").to_pylist()
    for rows in by_every_way(upstream, spark):
        assert rows == wanted


@pytest.mark.parametrize("writer", ["duckdb", "pyarrow"])
def test_a_uuid_is_a_uuid(tmp_path: Path, spark: "SparkSession", writer: str) -> None:
    if writer == "duckdb":
        values = ", ".join(
            f"({i}, {'NULL' if one is None else repr(str(one))}::UUID)" for i, one in enumerate(UUIDS)
        )
        with duckdb.connect() as db:
            db.execute(f"COPY (SELECT * FROM (VALUES {values}) AS t(id, u)) TO '{tmp_path}/a.parquet'")
    else:
        stored = pa.array([None if one is None else one.bytes for one in UUIDS], pa.uuid())
        pq.write_table(pa.table({"id": [0, 1, 2], "u": stored}), tmp_path / "a.parquet")
    upstream = opened(tmp_path)
    assert '"type":"string","nullable":true,"metadata":{"logical":"uuid"}' in dict(upstream.pin().schema)["t"]
    for rows in by_every_way(upstream, spark):
        assert [row["u"] for row in rows] == TEXTS


def test_a_uuid_inside_a_list_is_refused(tmp_path: Path) -> None:
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT 1 AS id, [uuid()] AS u) TO '{tmp_path}/a.parquet'")
    with pytest.raises(BadData, match=r"a\.parquet: column 'u\..*UUID inside another value"):
        opened(tmp_path).pin()


def test_an_interval_is_refused(tmp_path: Path) -> None:
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT 1 AS id, INTERVAL 1 MONTH AS i) TO '{tmp_path}/a.parquet'")
    with pytest.raises(BadData, match=r"a\.parquet: column 'i': type INTERVAL"):
        opened(tmp_path).pin()


def test_nanoseconds_of_pandas_that_are_whole_microseconds_pass(tmp_path: Path, spark: "SparkSession") -> None:
    # as pandas writes its own timestamps
    wall, at = dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)
    columns = {
        "id": pa.array([1, 2]),
        "wall": pa.array([wall, None], pa.timestamp("ns")),
        "at": pa.array([at, None], pa.timestamp("ns", "UTC")),
        "inner": pa.array([[wall], []], pa.list_(pa.timestamp("ns"))),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for rows in by_every_way(opened(tmp_path), spark):
        assert [row["wall"] for row in rows] == [wall, None]
        assert [row["at"] and row["at"].astimezone(dt.UTC) for row in rows] == [at, None]
        assert [row["inner"] for row in rows] == [[wall], []]


def test_a_nanosecond_is_refused_naming_its_column(tmp_path: Path, spark: "SparkSession") -> None:
    pq.write_table(pa.table({"id": [1], "at": pa.array([1001], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    upstream = opened(tmp_path)
    pinned = [SnapshotRead("t", s.id, 0, None) for s in upstream.pin().splits]
    with pytest.raises(Exception, match="backfill:") as caught:
        upstream.scan(spark, "t", pinned).toArrow()
    error = from_spark(caught.value)
    assert isinstance(error, BadData)
    assert "a.parquet: row 1 (of id 1): column 'at': a value is not a timestamp[us]" in error.message


class Wkb(pa.ExtensionType):  # type: ignore[misc]
    """What pyarrow writes as Parquet's GEOMETRY."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return b"{}"

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> "Wkb":
        return cls()


@contextmanager
def known(kind: pa.ExtensionType) -> Iterator[None]:
    pa.register_extension_type(kind)
    try:
        yield
    finally:
        pa.unregister_extension_type(kind.extension_name)


def test_a_geometry_is_its_bytes_also_where_spark_goes_on_with_the_rows(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    point = b"\x01\x01\x00\x00\x00" + b"\x00" * 16
    with known(Wkb()):
        shape = pa.ExtensionArray.from_storage(Wkb(), pa.array([point, None]))
        pq.write_table(pa.table({"id": [1, 2], "g": shape}), tmp_path / "a.parquet", store_schema=False)
    assert "Geometry" in str(pq.read_metadata(tmp_path / "a.parquet").schema.column(1).logical_type)
    for rows in by_every_way(opened(tmp_path), spark):
        assert [row["g"] for row in rows] == [point, None]
