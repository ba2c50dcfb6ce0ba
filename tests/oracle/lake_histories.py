"""Partitioned lake tables with a history: rows move between partitions, columns come, files are compacted.

Each is many small logs in one table, by the formats' libraries or by Spark; what it leads to is computed here.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from oracle import lake_history_writers as writers
from oracle.answer import Answer, Rows
from oracle.inputs import KEYS, Files, Input
from oracle.lake_inputs import ROW_KEYS, Change, Values, a_version, after
from oracle.readers import parquet
from oracle.readers.cells import Doubt

COLUMNS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "s": (pa.string(), ("a", "a b ", "%2F", "x/y", "k=v", "é", "e\u0301", None)),
    "i": (pa.int32(), (-1, 2**31 - 1, None)),
    "day": (pa.date32(), (date(1969, 12, 31), date(2024, 2, 29), None)),
    "v": (pa.string(), ("", "v", "__HIVE_DEFAULT_PARTITION__", "\x01", "\U0001f600", None)),
    "n": (pa.decimal128(9, 2), (Decimal("-0.01"), Decimal("9999999.99"), None)),
    "f": (pa.float64(), (-0.0, float("nan"), float("inf"), 0.1, None)),
}
ADDED: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "more": (pa.int64(), (7, -(2**63), None)),
    "late": (pa.string(), ("", "x", None)),
}
Step = tuple[str, Any]
"""('change', changes) | ('add', column) | ('compact', None)."""
STEPS = ("change", "add", "change", "compact", "add", "change")


def schema_of(width: int) -> pa.Schema:
    """The table with so many columns beside the key."""
    columns = [(name, kind) for name, (kind, _) in {**COLUMNS, **ADDED}.items()]
    return pa.schema([("id", pa.int64()), *columns[:width]])


def table_of(width: int, rows: Mapping[int, Values]) -> pa.Table:
    """Rows by key, as Arrow; those from before a column was added have NULL there."""
    schema = schema_of(width)
    columns = [
        pa.array([padded(row, width)[n] for row in rows.values()], schema[n + 1].type) for n in range(width)
    ]
    return pa.Table.from_arrays([pa.array(list(rows), pa.int64()), *columns], schema=schema)


def padded(row: Values, width: int) -> Values:
    return (*row, *[None] * (width - len(row)))


@dataclass(frozen=True, repr=False)
class History(Input):
    """load: rows by key. partitions: columns. steps: each is one commit or more of `writer`."""

    form: str
    writer: str
    partitions: tuple[str, ...]
    load: tuple[tuple[int, Values], ...]
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        changes = [len(told) for what, told in self.steps if what == "change"]
        parts = ", ".join(self.partitions)
        return (
            f"History({self.form}, by {self.writer}, parts by {parts}, {len(self.load)} rows, {changes} changes)"
        )

    @property
    def options(self) -> Mapping[str, Any]:
        version = writers.BEGIN[self.form, self.writer]
        return {"upstream": {"type": self.form, "table": "in/t", "version": version}}

    @property
    def kinds(self) -> tuple[str, ...]:
        return ()

    def files(self, number: int) -> Files:
        return {}

    @classmethod
    def write(cls, folder: Path, inputs: Sequence[Input]) -> None:
        (one,) = inputs
        assert isinstance(one, History)
        width = len(COLUMNS)
        made = writers.WRITERS[one.form, one.writer](folder / "in" / "t", schema_of(width), one.partitions)
        there = dict(one.load)
        for part in range(writers.PARTS):
            made.append(table_of(width, dict(one.load[part :: writers.PARTS])))
        made.begins()
        for what, told in one.steps:
            if what == "add":
                width += 1
                made.add(schema_of(width).field(width))
            elif what == "compact":
                made.compact()
            else:
                before, there = there, after(there, told)
                moved = {key: to for op, key, to in told if op == "move"}
                put = {key: there[key] for op, key, _ in told if op == "put"}
                gone = [key for op, key, _ in told if op == "drop" and key in before]
                landed = table_of(width, {to: there[to] for to in moved.values()})
                made.change(moved, landed, table_of(width, put), gone)

    def answer(self, number: int) -> Answer:
        rows, width = dict(self.load), len(COLUMNS)
        for what, told in self.steps:
            width += what == "add"
            rows = after(rows, told) if what == "change" else rows
        held, doubt = table_of(width, rows), Doubt()
        types = tuple((field.name, parquet.of_type(field.type, doubt)) for field in held.schema)
        columns = [[parquet.of_value(one, doubt) for one in column] for column in held.columns]
        found = tuple(dict(zip(held.column_names, row, strict=True)) for row in zip(*columns, strict=True))
        assert not doubt.reasons, doubt
        return Rows(found, types)


def history(form: str, writer: str, partitions: tuple[str, ...], chance: random.Random, logs: int) -> History:
    """So many small logs, each of a few keys of its own."""
    pools = [pool for _, pool in {**COLUMNS, **ADDED}.values()]
    width = len(COLUMNS)

    def row() -> Values:
        return tuple(chance.choice(pool) for pool in pools[:width])

    load: dict[int, Values] = {}
    there: list[set[int]] = []
    for number in range(1, logs + 1):
        keys = range(number * KEYS, number * KEYS + ROW_KEYS)
        there.append({key for key in keys if chance.random() < 0.6})
        load |= {key: row() for key in there[-1]}
    steps: list[Step] = []
    for what in STEPS:
        width += what == "add"
        made: list[Change] = []
        for number in range(logs if what == "change" else 0):
            keys = range((number + 1) * KEYS, (number + 1) * KEYS + ROW_KEYS)
            own = a_version(chance, keys, there[number], row)
            there[number] = set(after(dict.fromkeys(there[number], ()), own))
            made += own
        steps.append((what, tuple(made)))
    return History(form, writer, partitions, tuple(load.items()), tuple(steps))
