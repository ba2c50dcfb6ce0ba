"""Delta and Iceberg tables: rows of every type, then versions of changes, written by the formats' libraries."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from oracle import lake_writers
from oracle.answer import Answer, Refused, Rows
from oracle.inputs import KEYS, Files, Input
from oracle.parquet_examples import PLAIN
from oracle.parquet_inputs import KINDS, array, values
from oracle.readers import parquet
from oracle.readers.cells import Doubt
from oracle.records import drawn

_FLAT = pa.struct([("n", pa.int64()), ("b", pa.binary())])
MORE: dict[str, tuple[pa.DataType, Any]] = {
    "map of timestamps": (pa.map_(pa.int32(), pa.timestamp("us", "UTC")), ((1, -1), (2, None))),
    "list of binary": (pa.list_(pa.binary()), (b"\x00", None)),
    "struct of binary": (_FLAT, (1, b"\xff")),
    "list of struct": (pa.list_(_FLAT), ((None, b""), None)),
}
ARROW: dict[str, pa.DataType] = {**KINDS, **{name: kind for name, (kind, _) in MORE.items()}}
EXAMPLES: dict[str, Any] = {**PLAIN, **{name: value for name, (_, value) in MORE.items()}}

BOTH = {
    "int32": "integer", "int64": "long", "float": "float", "double": "double", "bool": "boolean",
    "string": "string", "binary": "binary", "date32": "date", "decimal(9,2)": "decimal(9,2)",
    "decimal(18,0)": "decimal(18,0)", "decimal(38,10)": "decimal(38,10)", "list": "array<decimal>",
    "list of list": "array<array>", "list of binary": "array<binary>", "map": "map<string, integer>",
    "map of timestamps": "map<integer, timestamp>", "struct of binary": "struct",
}  # fmt: skip
COLUMNS: dict[str, dict[str, str]] = {
    "delta": {
        "int8": "byte", "int16": "short", **BOTH, "timestamp(us, UTC)": "timestamp",
        "timestamp(us)": "timestamp_ntz", "struct": "struct<array<struct>>", "list of struct": "array<struct>",
    },
    "iceberg": {
        **BOTH, "timestamp(us, UTC)": "timestamptz", "timestamp(us)": "timestamp", "uuid": "uuid",
        "fixed(4)": "fixed",
    },
}  # fmt: skip
"""By format: Arrow's types that its writers take, and what the format calls them. (pyiceberg 0.12
writes a NULL as an empty list where its elements are structs, or it is in one.)"""

ROW_KEYS = 4
"""Keys that one log uses."""

Values = tuple[Any, ...]
Change = tuple[str, int, Any]
"""('put', key, values) | ('drop', key, None) | ('move', key, to)."""


def flat(form: str) -> tuple[str, ...]:
    """Columns that hold one value, of a type that Spark has: tables of these alone are read without its reader."""
    without = ("uuid", "fixed(4)")
    return tuple(kind for kind in COLUMNS[form] if kind not in without and not pa.types.is_nested(ARROW[kind]))


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([("id", pa.int64()), *((f"c{i}", ARROW[kind]) for i, kind in enumerate(columns))])


def table_of(columns: Sequence[str], rows: Mapping[int, Values]) -> pa.Table:
    """Rows by key, as Arrow."""
    ids = pa.array(list(rows), pa.int64())
    arrays = [array(tuple(row[i] for row in rows.values()), ARROW[kind]) for i, kind in enumerate(columns)]
    return pa.Table.from_arrays([ids, *arrays], schema=schema_of(columns))


@dataclass(frozen=True, repr=False)
class LakeLog(Input):
    """load: rows that the table begins with, by key. versions: what each changes, of a key one change.

    columns: Arrow's types of the columns beside the key.
    """

    form: str
    columns: tuple[str, ...]
    load: tuple[tuple[int, Values], ...]
    versions: tuple[tuple[Change, ...], ...]

    def __repr__(self) -> str:
        return f"LakeLog({self.form}, {len(self.load)} rows, {[len(one) for one in self.versions]})"

    @property
    def options(self) -> Mapping[str, Any]:
        version = lake_writers.BEGIN[self.form]
        return {"upstream": {"type": self.form, "table": "in/t", "version": version}}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(COLUMNS[self.form][kind] for kind in self.columns)

    def files(self, number: int) -> Files:
        return {}

    @classmethod
    def write(cls, folder: Path, inputs: Sequence[Input]) -> None:
        (one,) = inputs
        assert isinstance(one, LakeLog)
        made = lake_writers.WRITERS[one.form](folder / "in" / "t", schema_of(one.columns))
        there = dict(one.load)
        for part in range(lake_writers.PARTS):
            made.append(table_of(one.columns, dict(one.load[part :: lake_writers.PARTS])))
        made.begins()
        for changes in one.versions:
            before, there = there, after(there, changes)
            moved = {key: to for op, key, to in changes if op == "move"}
            put = {key: there[key] for op, key, _ in changes if op == "put"}
            gone = [key for op, key, _ in changes if op == "drop" and key in before]
            landed = {to: there[to] for to in moved.values()}
            made.change(moved, table_of(one.columns, landed), table_of(one.columns, put), gone)

    def answer(self, number: int) -> Answer:
        rows = dict(self.load)
        for changes in self.versions:
            rows = after(rows, changes)
        told, doubt = table_of(self.columns, rows), Doubt()
        types = tuple((field.name, parquet.of_type(field.type, doubt)) for field in told.schema)
        columns = [[parquet.of_value(one, doubt) for one in column] for column in told.columns]
        names = told.column_names
        held = tuple(dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        assert not set(doubt.reasons) - {"arrow.uuid, a type of Arrow's own"}, doubt
        return Rows(held, types)


def after(rows: Mapping[int, Values], changes: Sequence[Change]) -> dict[int, Values]:
    """What a version leaves. Keys move at once: two may change places."""
    left = dict(rows)
    moved = {key: to for op, key, to in changes if op == "move"}
    for key in moved:
        del left[key]
    for key, to in moved.items():
        left[to] = rows[key]
    for op, key, row in changes:
        if op == "put":
            left[key] = row
        elif op == "drop":
            left.pop(key, None)
    return left


def whole(form: str, chance: random.Random, logs: int, columns: Sequence[str] = ()) -> LakeLog:
    """So many small logs in one table: an example of every type, then values that Hypothesis draws.

    columns: Arrow's types of its columns, all that the format has where none are given.
    """
    kinds = tuple(columns or COLUMNS[form])
    pools = [[EXAMPLES[kind], None, *drawn(_values(kind), 60)] for kind in kinds]

    def row() -> Values:
        return tuple(chance.choice(pool) for pool in pools)

    load: dict[int, Values] = {n: tuple(pool[n % 2] for pool in pools) for n in range(2)}
    versions: list[list[Change]] = [[] for _ in range(3)]
    for number in range(1, logs + 1):
        keys = range(number * KEYS, number * KEYS + ROW_KEYS)
        there = {key for key in keys if chance.random() < 0.6}
        load |= {key: row() for key in there}
        for changes in versions:
            made = a_version(chance, sorted(keys), there, row)
            there = set(after(dict.fromkeys(there, ()), made))
            changes += made
    return LakeLog(form, kinds, tuple(load.items()), tuple(tuple(one) for one in versions))


def a_version(chance: random.Random, keys: Sequence[int], there: set[int], row: Any) -> list[Change]:
    """Of a version: each key at most once."""
    kind = chance.random()
    held = sorted(there)
    free = [key for key in keys if key not in there]
    if kind < 0.15 and len(held) > 1:
        one, other = chance.sample(held, 2)
        return [("move", one, other), ("move", other, one)]
    if kind < 0.3 and held and free:
        return [("move", chance.choice(held), chance.choice(free))]
    if kind < 0.4:
        return []
    touched = chance.sample(keys, 2)
    return [("drop", key, None) if chance.random() < 0.4 else ("put", key, row()) for key in touched]


def _values(kind: str) -> Any:
    """As for Parquet; of what only lakes are asked for, with NULLs inside."""
    from hypothesis import strategies as st

    if kind == "map of timestamps":
        pairs = st.lists(st.tuples(st.integers(0, 9), values(pa.timestamp("us"))), unique_by=lambda p: p[0])
        return st.none() | pairs.map(lambda found: tuple(found[:3]))
    return values(ARROW[kind])


@dataclass(frozen=True)
class OddColumn(Input):
    """A table with a column that no way of ours can carry: `v`, of a type as the format calls it."""

    form: str
    kind: str

    @property
    def options(self) -> Mapping[str, Any]:
        return {"upstream": {"type": self.form, "table": "in/t"}}

    @property
    def kinds(self) -> tuple[str, ...]:
        return (self.kind,)

    def files(self, number: int) -> Files:
        return {}

    @classmethod
    def write(cls, folder: Path, inputs: Sequence[Input]) -> None:
        (one,) = inputs
        assert isinstance(one, OddColumn)
        lake_writers.odd_column(one.form, folder / "in" / "t", one.kind)

    def answer(self, number: int) -> Answer:
        return Refused(f"{self.kind} has no counterpart", ("type variant",) if self in NUMBERED else ("'v'",))


NUMBERED = (OddColumn("iceberg", "variant"),)
"""Of a type that pyiceberg does not know: it fails before there are columns that could be named."""

ODD = {
    "delta": ("variant", "void"),
    "iceberg": ("time", "timestamp_ns", "timestamptz_ns", "unknown", "variant"),
}
