"""Parquet files as pyarrow and DuckDB write them: every type, many of the options that a writer has."""

import datetime as dt
import io
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from oracle.answer import Answer
from oracle.inputs import KEYS, Files, Input
from oracle.readers import parquet

_SMALL = pa.struct([("n", pa.int64()), ("l", pa.list_(pa.struct([("t", pa.string())])))])
UTC = dt.UTC

KINDS: dict[str, pa.DataType] = {
    **{str(kind): kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "half": pa.float16(), "float": pa.float32(), "double": pa.float64(), "bool": pa.bool_(), "null": pa.null(),
    "string": pa.string(), "large_string": pa.large_string(), "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "binary": pa.binary(), "large_binary": pa.large_binary(), "fixed(4)": pa.binary(4), "uuid": pa.uuid(),
    "decimal(9,2)": pa.decimal128(9, 2), "decimal(18,0)": pa.decimal128(18, 0),
    "decimal(38,10)": pa.decimal128(38, 10),
    "decimal(40,2)": pa.decimal256(40, 2), "date32": pa.date32(), "date64": pa.date64(),
    **{f"timestamp({unit})": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp({unit}, UTC)": pa.timestamp(unit, "UTC") for unit in ("ms", "us", "ns")},
    "timestamp(us, Europe/Vienna)": pa.timestamp("us", "Europe/Vienna"),
    "time32": pa.time32("ms"), "time64": pa.time64("us"), "duration": pa.duration("us"),
    "list": pa.list_(pa.decimal128(5, 2)), "large_list": pa.large_list(pa.int32()),
    "list(3)": pa.list_(pa.int16(), 3),
    "list of list": pa.list_(pa.list_(pa.string())), "map": pa.map_(pa.string(), pa.int32()), "struct": _SMALL,
    "list of timestamp(ns)": pa.list_(pa.timestamp("ns")), "struct of uint64": pa.struct([("u", pa.uint64())]),
}  # fmt: skip


# Of lists of a fixed length pyarrow cannot read those that are NULL.
_OPEN = ("uint64", "half", "null", "uuid", "decimal(40,2)", "date64", "time32", "time64", "duration", "list(3)")
EXACT = tuple(name for name in KINDS if name not in _OPEN and "ns" not in name and "uint64" not in name)
"""The types that every route must take, whatever the value."""


@dataclass(frozen=True)
class Writer:
    """How pyarrow writes a file; `by` duckdb: DuckDB does, by its own defaults."""

    by: str = "pyarrow"
    version: str = "2.6"
    page: str = "1.0"
    codec: str = "snappy"
    dictionary: bool = True
    rows: int = 100
    int96: bool = False
    schema: bool = True
    statistics: bool = True


@dataclass(frozen=True)
class ParquetFile(Input):
    """One file with the columns `id` and `v`; of `v` the values are those of `held`, in order."""

    kind: str
    held: tuple[Any, ...]
    writer: Writer = Writer()
    name: str = "v"
    form: ClassVar[str] = "parquet"

    @property
    def options(self) -> Mapping[str, Any]:
        return {"upstream": {"type": "files", "snapshot": {"path": "in", "format": "parquet"}}}

    @property
    def group(self) -> str:
        """Files of one snapshot have one schema."""
        w = self.writer
        return repr((self.kind, self.name, w.by, w.int96, w.schema, w.version == "1.0"))

    def files(self, number: int) -> Files:
        return {f"in/{number}.parquet": _file(self, number)}

    def answer(self, number: int) -> Answer:
        return parquet.read(self.files(number))

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("INT96" if self.writer.int96 and "timestamp" in self.kind else self.kind,)


@dataclass(frozen=True)
class ParquetWide(Input):
    """One file with `id` and a column of each type of `held`: (kind, values), all of one length."""

    held: tuple[tuple[str, tuple[Any, ...]], ...]
    writer: Writer = Writer()
    form: ClassVar[str] = "parquet, all types"

    @property
    def options(self) -> Mapping[str, Any]:
        return {"upstream": {"type": "files", "snapshot": {"path": "in", "format": "parquet"}}}

    @property
    def group(self) -> str:
        return repr((self.writer.by, self.writer.schema, self.writer.version == "1.0"))

    @property
    def size(self) -> int:
        return len(self.held)

    def files(self, number: int) -> Files:
        return {f"in/{number}.parquet": _wide_file(self, number)}

    def answer(self, number: int) -> Answer:
        return parquet.read(self.files(number))

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.held)


@cache
def _wide_file(one: ParquetWide, number: int) -> bytes:
    columns = {f"c{i}": array(held, KINDS[kind]) for i, (kind, held) in enumerate(one.held)}
    return _written(_ids(len(one.held[0][1]), number), columns, one.writer)


@cache
def _file(one: ParquetFile, number: int) -> bytes:
    return _written(_ids(len(one.held), number), {one.name: array(one.held, KINDS[one.kind])}, one.writer)


def _ids(count: int, number: int) -> pa.Array:
    return pa.array([number * KEYS + i for i in range(count)], pa.int64())


def _written(ids: pa.Array, columns: Mapping[str, pa.Array], writer: Writer) -> bytes:
    table = pa.table({"id": ids, **columns})
    if writer.by == "duckdb":
        return _by_duckdb(table)
    out = io.BytesIO()
    pq.write_table(
        table, out,
        version=writer.version, data_page_version=writer.page, compression=writer.codec,
        use_dictionary=writer.dictionary, row_group_size=writer.rows,
        use_deprecated_int96_timestamps=writer.int96, store_schema=writer.schema,
        write_statistics=writer.statistics, allow_truncated_timestamps=False,
    )  # fmt: skip
    return out.getvalue()


def _by_duckdb(table: pa.Table) -> bytes:
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as con:
        path = Path(folder) / "f.parquet"
        con.register("held", table)
        con.execute(f"COPY held TO '{path}' (FORMAT parquet)")
        return path.read_bytes()


def array(held: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        # As bytes, so that a text that is none can be written too.
        return pa.array([h.encode() if isinstance(h, str) else h for h in held], pa.binary()).view(pa.string())
    if isinstance(kind, pa.UuidType):
        return pa.ExtensionArray.from_storage(kind, pa.array([h and h.bytes for h in held], pa.binary(16)))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        wide = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array(held, wide).view(kind)
    return pa.array([_made(h, kind) for h in held], kind)


def _made(held: Any, kind: pa.DataType) -> Any:
    """Tuples, which Hypothesis' inputs can be compared by, as Arrow wants them."""
    if held is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _made(one, field.type) for field, one in zip(kind, held, strict=True)}
    if pa.types.is_map(kind):
        return list(held)
    if isinstance(held, tuple):
        return [_made(one, kind.value_type) for one in held]
    return held


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Hashable values of a type: extremes, and one in three or so NULL."""
    return st.one_of(st.none(), _values(kind), _values(kind))


def _values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_integer(kind):
        bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return st.integers(low, high) | st.sampled_from([low, high])
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width) | st.sampled_from([-0.0, float("nan"), float("inf")])
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_decimal(kind):
        top = 10 ** (kind.precision - kind.scale) - 1
        return st.decimals(-top, top, places=kind.scale)
    if pa.types.is_fixed_size_binary(kind) and not isinstance(kind, pa.UuidType):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if isinstance(kind, pa.UuidType):
        return st.uuids() | st.just(uuid.UUID(int=0))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return st.binary(max_size=12)
    if pa.types.is_dictionary(kind):
        return st.sampled_from(["x", "", "é"])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
            ["", "\x00", "null"]
        )
    if pa.types.is_date32(kind):
        return st.integers(-719162, 2932896)
    if pa.types.is_date64(kind):
        return st.integers(-719162, 2932896).map(lambda days: days * 86_400_000)
    if pa.types.is_timestamp(kind):
        return _ticks(kind.unit)
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return st.integers(0, 86_399_999)
    if pa.types.is_map(kind):
        pairs = st.lists(st.tuples(st.text("abc"), values(kind.item_type)), max_size=3, unique_by=lambda p: p[0])
        return pairs.map(tuple)
    if pa.types.is_fixed_size_list(kind):
        return st.tuples(*[values(kind.value_type)] * kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return st.lists(values(kind.value_type), max_size=3).map(tuple)
    if pa.types.is_struct(kind):
        return st.tuples(*(values(field.type) for field in kind))
    return st.none()


def _ticks(unit: str) -> st.SearchStrategy[int]:
    a_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    if unit == "ns":
        whole = st.integers(-9_223_372_036_854_775, 9_223_372_036_854_775).map(lambda micros: micros * 1000)
        return st.one_of(whole, whole, st.integers(-(2**63) + 1, 2**63 - 1))
    first, last = parquet.FIRST // 10**6 * a_second, parquet.LAST // 10**6 * a_second + a_second - 1
    return st.integers(first, last) | st.sampled_from([first, last, -1, 0])


def writers() -> st.SearchStrategy[Writer]:
    return st.builds(
        Writer,
        version=st.sampled_from(["1.0", "2.4", "2.6"]), page=st.sampled_from(["1.0", "2.0"]),
        codec=st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4"]), dictionary=st.booleans(),
        rows=st.sampled_from([1, 3, 100]), schema=st.booleans(), statistics=st.booleans(),
    ) | st.just(Writer("duckdb"))  # fmt: skip


def wide() -> st.SearchStrategy[ParquetWide]:
    """Files of all types that every route must take, four rows each."""
    columns = st.tuples(*(st.tuples(st.just(k), st.tuples(*[values(KINDS[k])] * 4)) for k in EXACT))
    return st.builds(ParquetWide, columns, writers())


def files() -> st.SearchStrategy[ParquetFile]:
    """Files of one type each, those too that some or all values of must be refused."""

    def of(name: str) -> st.SearchStrategy[ParquetFile]:
        held = st.lists(values(KINDS[name]), min_size=1, max_size=8).map(tuple)
        return st.builds(ParquetFile, st.just(name), held, writers() | st.just(Writer(int96=True))).filter(
            _can_be_written
        )

    return st.sampled_from(list(KINDS)).flatmap(of)


def _can_be_written(one: ParquetFile) -> bool:
    """Some writers have no way to write some types or values: that is no input."""
    try:
        _file(one, 1)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, duckdb.Error):
        return False
    return True
