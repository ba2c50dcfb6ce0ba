"""The fast path for JSON: Arrow's parser converts a batch of records at once if all are plain objects.

It costs a tenth of Spark's expressions in json_values.py, and converts a batch exactly or not at all: anything odd
(a type that does not fit, a value that is not an object, half a surrogate pair) sends the whole batch to the
checked path, which reports what is wrong with which record. Both give the same columns; only the checked path
gives faults.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import own
from backfill_cli.formats.exact import decimal_of
from backfill_cli.model.schema import Columns, SparkType
from backfill_cli.spark.api import Column, F

if TYPE_CHECKING:
    import pyarrow as pa

_ROOT_NULL = re.compile(rb"\}\s*n")
"""An object followed by `null`, which crashes Arrow's parser."""

_WHOLE_NEGATIVE_ZERO = re.compile(rb"-0\s*[,}]")
"""A negative zero without a point: Arrow's parser keeps its sign in a DOUBLE, the checked path does not."""

_READ = {
    "boolean": "bool",
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "float": "float64",
    "double": "float64",
    "string": "string",
    "date": "string",
    "timestamp": "string",
    "timestamp_ntz": "string",
}


@dataclass(frozen=True, slots=True)
class FastPath:
    """Columns that can take the fast path.

    kinds: name and Spark type, in order. required: columns that must not be NULL. odd: groups of texts; a batch
    that contains all texts of a group takes the checked path.
    """

    kinds: tuple[tuple[str, str], ...]
    required: tuple[str, ...] = ()
    odd: tuple[tuple[bytes, ...], ...] = ()

    def spark_fields(self) -> str:
        """Spark schema of what a batch gets in addition to its records: `own.FAST`, and the columns by number."""
        columns = (f"{own.numbered(own.FAST, i)} {_DDL.get(kind, kind)}" for i, (_, kind) in enumerate(self.kinds))
        return ", ".join([f"{own.FAST} BOOLEAN", *columns])

    def arrow_types(self) -> "list[pa.DataType]":
        return [_final(kind) for _, kind in self.kinds]


_DDL = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def fast_path(
    columns: Columns, required: Sequence[str] = (), odd: Sequence[Sequence[bytes]] = ()
) -> FastPath | None:
    """The fast path for these columns; None if one of them always has to take the checked path."""
    kinds = [(name, column["type"]) for name, column in columns.items()]
    if all(_plain(kind) for _, kind in kinds):
        return FastPath(tuple((name, str(kind)) for name, kind in kinds), tuple(required), tuple(map(tuple, odd)))
    return None


def _plain(kind: SparkType) -> bool:
    return isinstance(kind, str) and (kind in _READ or kind.startswith("decimal"))


def read(values: Sequence[bytes | None], fast: FastPath) -> "list[pa.Array] | None":
    """Each column of `fast`, a row per value, NULLs for a NULL; None if they must take the checked path."""
    import pyarrow as pa
    import pyarrow.json as pj

    tombstones = sum(value is None for value in values) if None in values else 0
    joined = b"\n".join([b"{}" if value is None else value for value in values] if tombstones else values)  # type: ignore[arg-type]
    if not _one_object_a_line(joined, len(values)) or any(all(t in joined for t in texts) for texts in fast.odd):
        return None
    schema = pa.schema([(name, _read_type(kind)) for name, kind in fast.kinds])
    try:
        table = pj.read_json(
            pa.BufferReader(joined),
            pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(values) or any(table[name].null_count > tombstones for name in fast.required):
            return None
        found = [_exactly(table[name].combine_chunks(), kind) for name, kind in fast.kinds]
    except (pa.ArrowException, ValueError):
        return None
    if any(map(_has_negative_zero, found)) and _WHOLE_NEGATIVE_ZERO.search(joined):
        return None
    lacking = any(column is not None and column.null_count > tombstones for column in found)
    if lacking and _is_recased(values, joined, [name for name, _ in fast.kinds]):
        return None
    return None if any(column is None for column in found) else found


def beside(values: Sequence[bytes | None], fast: FastPath) -> "dict[str, pa.Array]":
    """`own.FAST`, and the columns by number, all NULL if the batch takes the checked path."""
    import pyarrow as pa

    found = read(values, fast)
    told = {own.FAST: pa.repeat(pa.scalar(found is not None), len(values))}
    columns = found if found is not None else [pa.nulls(len(values), kind) for kind in fast.arrow_types()]
    return told | {own.numbered(own.FAST, i): column for i, column in enumerate(columns)}


def by_either_path(values: dict[str, Column], fast: FastPath | None) -> dict[str, Column]:
    """The values of records: from the fast path if the record took it, else as given."""
    if fast is None:
        return values
    return {
        name: F.when(F.col(own.FAST), F.col(own.numbered(own.FAST, i))).otherwise(values[name])
        for i, (name, _) in enumerate(fast.kinds)
    }


def _one_object_a_line(joined: bytes, count: int) -> bool:
    """Whether every value begins and ends like an object, and contains no line end."""
    return (
        joined.startswith(b"{")
        and joined.endswith(b"}")
        and joined.count(b"\n") == joined.count(b"}\n{") == count - 1
        and _ROOT_NULL.search(joined) is None
    )


def _exactly(column: Any, kind: str) -> Any:
    """The column in its own type; None, or pyarrow's error, if a value would become another one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    # finds half surrogate pairs, and digits beyond a decimal's precision
    column.validate(full=True)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return column.cast(_final(kind))
    if kind == "float":
        if _may_round_twice(column):
            return None
        column = column.cast(pa.float32(), safe=False)
    # Arrow reads numbers just beyond the largest as infinity.
    if kind in ("float", "double") and pc.any(pc.is_inf(column)).as_py():
        return None
    return column


def _is_recased(values: Sequence[bytes | None], joined: bytes, names: Sequence[str]) -> bool:
    """Whether a member's name differs from a column's only in case: its record would silently get a NULL."""
    lower = joined.lower()  # lowers ASCII letters only
    plain = b"\\u" not in joined and all(name.isascii() for name in names)
    if plain and all(
        lower.count(f'"{name.lower()}"'.encode()) <= joined.count(f'"{name}"'.encode()) for name in names
    ):
        return False
    known, folded = set(names), {name.lower() for name in names}
    try:
        members = {member for value in values if value is not None for member in json.loads(value)}
    except ValueError:
        return True
    return any(member.lower() in folded for member in members - known)


def _may_round_twice(column: Any) -> bool:
    """Whether a DOUBLE lies halfway between two FLOATs: its text may not, and then the nearer FLOAT is right."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tie = pc.equal(pc.bit_wise_and(column.view(pa.int64()), 0x1FFFFFFF), 0x10000000)
    size = pc.abs(column)
    subnormal = pc.and_(pc.less(size, 2.0**-126), pc.greater(size, 0.0))
    return bool(pc.any(pc.or_(tie, subnormal)).as_py())


def _has_negative_zero(column: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column is None or not pa.types.is_floating(column.type):
        return False
    bits, least = (pa.int32(), -(2**31)) if column.type == pa.float32() else (pa.int64(), -(2**63))
    return bool(pc.any(pc.equal(column.view(bits), pa.scalar(least, bits))).as_py())


def _read_type(kind: str) -> Any:
    import pyarrow as pa

    return pa.decimal128(*decimal_of(kind)) if kind.startswith("decimal") else pa.type_for_alias(_READ[kind])


def _final(kind: str) -> Any:
    import pyarrow as pa

    own = {
        "float": pa.float32(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return own[kind] if kind in own else _read_type(kind)
