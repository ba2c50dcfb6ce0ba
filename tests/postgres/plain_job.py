"""A job of the real upstream and strategy without Spark: its sink is a dictionary, judged at each commit.

The judge is the database itself: what it holds where the window ended, limited to the keys that were read.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pyarrow.parquet as pq
import pytest
from postgres_database import Database
from psycopg import sql

from backfill_cli.cdc import ranges
from backfill_cli.contracts import LogRequest, TableSpec
from backfill_cli.engine.staging.transform import evolved
from backfill_cli.model.job import Control
from backfill_cli.model.pace import Budget
from backfill_cli.model.plan import EpochPlan, SnapshotRead, Staged
from backfill_cli.model.upstream import UpstreamView
from backfill_cli.strategies.arrangement import ArrangementStrategy
from backfill_cli.upstreams.postgres import connector, source

Rows = dict[tuple[Any, ...], dict[str, Any]]
Within = Mapping[tuple[str, str], Any]


def nothing() -> None:
    pass


@dataclass
class Between:
    """What somebody writes at these moments of an epoch and at no other: so the database tells what is right."""

    observe: Callable[[], None] = nothing
    closed: Callable[[], None] = nothing
    rows: Callable[[], None] = nothing
    take: Callable[[], None] = nothing


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of 12 rows, chunks of 4, and no Spark."""
    monkeypatch.setattr(ranges, "SPLIT_ROWS", 12)
    monkeypatch.setattr(ranges, "CHUNK_ROWS", 4)
    monkeypatch.setattr(source, "in_worker", lambda _spark, take, request, _kind: take(request))


@dataclass
class PlainJob:
    """tables: name, as SQL, -> its key's columns. rows: about how many an epoch reads. enums: by table, of columns
    whose type is a domain over an enumeration, that enumeration: the server compares no such domains.
    """

    db: Database
    folder: Path
    tables: Mapping[str, Sequence[str]]
    rows: int = 10
    between: Between = field(default_factory=Between)
    options: dict[str, Any] = field(default_factory=dict)
    enums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slot = self.options.pop("slot", f"job_{self.db.name}")
        self.upstream = self._opened()
        self.upstream.pin()
        self.upstream.require_able()
        self.upstream.create(self.db.name)
        self.pin = self.upstream.pin()
        self.upstream.adopt(self.db.name, self.pin)
        self.schemas = dict(self.pin.schema)
        self.strategy = ArrangementStrategy(self.pin.splits)
        self.state = self.strategy.start(self.pin, Control())
        self.sink: dict[str, Rows] = {name: {} for name in self.tables}
        self.memory = ""
        self.epochs = 0

    def _opened(self) -> Any:
        options = connector.options.model_validate({"dsn": self.db.dsn, "slot": self.slot, **self.options})
        return connector.open(options, [TableSpec(name, tuple(key)) for name, key in self.tables.items()])

    def die(self) -> None:
        """The process is gone with all that it knew beside the last commit; another took over."""
        self.upstream.close()
        self.upstream = self._opened()
        self.upstream.restore(self.pin)
        if self.memory:
            self.upstream.recall(self.memory)

    def asking(self) -> AbstractContextManager["psycopg.Connection[Any]"]:
        """A connection of the judge's."""
        return psycopg.connect(self.db.dsn, autocommit=True)

    @property
    def following(self) -> bool:
        return self.state.phase == "upstream"

    def step(self, commit: bool = True, judged: bool = True) -> bool:
        """One epoch, judged once it is committed. Returns whether there was anything to do."""
        self.between.observe()
        view = self._observed()
        right = self._right(None) if judged and self.following else {}
        budget = Budget(int(time.time() * 1000), self.rows, 1000, int(time.monotonic() * 1000))
        plan = self.strategy.plan(self.state, view, budget)
        if not plan:
            return False
        assert plan.window is not None
        reads, read = self._read(plan)
        if plan.window.open:
            self.between.take()
        within = None
        if plan.within is not None:
            within = {**plan.within, **{(one.table, one.split): one.up_to for one, _ in reads}}
        taken = self.upstream.take(None, LogRequest(plan.window, within, self.schemas, str(self.folder)))
        if judged and not self.following:
            right = self._right(within)
        memory = self.upstream.remembered(taken.window.up_to)
        if not commit:
            return True
        self.epochs += 1
        self.schemas = evolved(self.schemas, taken.schemas)
        self._commit(read, taken)
        staged = Staged("attempt", {}, tuple(reads), 0, taken.window)
        self.state = self.strategy.advance(self.state, plan, staged, budget)
        self.memory = memory
        whole = plan.window.open or taken.window.up_to == plan.window.up_to
        if judged and whole:
            self.judge(right)
        self.upstream.acknowledge(self.state.position)
        return True

    def _observed(self) -> UpstreamView:
        """What the upstream sees once it sees all that was committed until now."""
        while True:
            view: UpstreamView = self.upstream.observe(self.state.position, not self.following)
            if not view.behind:
                return view
            time.sleep(0.02)

    def follow(self, most: int = 50, judged: bool = True) -> None:
        """Until nothing is left to do; then the sink is the database."""
        for _ in range(most):
            if not self.step(judged=judged) and self.following:
                self.judge(self._right(None))
                return
        raise AssertionError(f"not at its end after {most} epochs: {self.state}")

    def _read(self, plan: EpochPlan) -> tuple[list[tuple[SnapshotRead, int]], dict[str, list[dict[str, Any]]]]:
        reads: list[tuple[SnapshotRead, int]] = []
        found: dict[str, list[dict[str, Any]]] = {}
        for name in dict.fromkeys(one.table for one in plan.reads):
            self.between.closed()
            closed = self.upstream.closed(name, [one for one in plan.reads if one.table == name])
            tasks = self.upstream.batches(name, closed, 2)
            counts = [0] * len(closed)
            for part in tasks.parts:
                for piece in part:
                    self.between.rows()
                    for batch in tasks.make(piece.what):
                        counts[piece.read] += batch.num_rows
                        found.setdefault(name, []).extend(batch.to_pylist())
            reads += zip(closed, counts, strict=True)
        return reads, found

    def _commit(self, read: Mapping[str, list[dict[str, Any]]], taken: Any) -> None:
        """As every sink does: truncate, the rows that were read, the changes."""
        for name, sink in self.sink.items():
            for row in sink.values():
                row.update({field["name"]: None for field in self._fields(name) if field["name"] not in row})
            table = taken.tables.get(name)
            if table is not None and table.truncated:
                sink.clear()
            for row in () if table is not None and table.truncated else read.get(name, ()):
                assert self._key(name, row) not in sink, f"{name}: read twice: {row}"
                sink[self._key(name, row)] = plain(row)
            for row in self._changes(table) if table is not None else ():
                key = self._key(name, row)
                if row["_backfill_op"] == "D":
                    sink.pop(key, None)
                    continue
                kept = {column: sink[key][column] for column in row.get("_backfill_unsent") or ()}
                new = {column: value for column, value in row.items() if not column.startswith("_backfill_")}
                sink[key] = {**plain(new), **kept}

    def _changes(self, table: Any) -> list[dict[str, Any]]:
        rows = [row for file in table.files for row in pq.ParquetFile(self.folder / file.path).read().to_pylist()]
        return sorted(rows, key=lambda row: row["_backfill_seq"])

    def _key(self, name: str, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """0 and -0 are one key, as in the database and in every sink."""
        values = [row[column] for column in self.tables[name]]
        return tuple(_value(abs(value) if isinstance(value, float) and value == 0 else value) for value in values)

    def judge(self, right: Mapping[str, Rows]) -> None:
        for name, rows in right.items():
            sink = self.sink[name]
            missing = {key: row for key, row in rows.items() if key not in sink}
            extra = {key: row for key, row in sink.items() if key not in rows}
            # a column that the epoch itself brought is judged from the next one on
            seen = {key: {name: sink[key].get(name) for name in row} for key, row in rows.items() if key in sink}
            other = {key: (row, rows[key]) for key, row in seen.items() if rows[key] != row}
            wrong = f"{name}: missing {missing}, extra {extra}, other {other}"
            assert (missing, extra, other) == ({}, {}, {}), wrong[:4000]

    def _right(self, within: Within | None) -> dict[str, Rows]:
        """The tables as the database has them now. within: how far each split was read; None: all of them."""
        found: dict[str, Rows] = {}
        with self.asking() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, key in self.tables.items():
                shape = connection.execute(
                    "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute "
                    "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' "
                    "ORDER BY attnum",
                    (name,),
                ).fetchall()
                types = dict(shape) | self.enums.get(name, {})
                columns = [(c, t) for c, t in shape if c in {f["name"] for f in self._fields(name)}]
                query = sql.SQL("SELECT {} FROM {} WHERE {}").format(
                    sql.SQL(", ").join(map(selected, columns)),
                    sql.SQL(name),  # type: ignore[arg-type]
                    self._covered(name, [(c, types[c]) for c in key], within),
                )
                rows = [
                    dict(zip((c for c, _ in columns), row, strict=True))
                    for row in connection.execute(query).fetchall()
                ]
                found[name] = {self._key(name, row): plain(row) for row in rows}
                assert len(found[name]) == len(rows)
        return found

    def _fields(self, name: str) -> list[dict[str, Any]]:
        fields: list[dict[str, Any]] = json.loads(self.schemas[name])["fields"]
        return fields

    def _covered(self, name: str, key: list[tuple[str, str]], within: Within | None) -> sql.Composable:
        if within is None:
            return sql.SQL("true")
        parts: list[sql.Composable] = []
        for split in self.pin.splits:
            if split.table != name or (name, split.id) not in within:
                continue
            bounds, reached = json.loads(split.detail), within[(name, split.id)]
            end = reached if reached is not None else bounds.get("up_to")
            low = [_compared(key, ">", bounds["after"])] if "after" in bounds else []
            high = [_compared(key, "<=", end)] if end is not None else []
            parts.append(sql.SQL(" AND ").join([sql.SQL("true"), *low, *high]))
        return sql.SQL(" OR ").join([sql.SQL("false"), *parts])


def _compared(key: list[tuple[str, str]], operator: str, cursor: str) -> sql.Composable:
    texts = json.loads(cursor)
    part = key[: len(texts)]
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(
            sql.SQL("{}::mood" if kind == "mood" else "{}").format(sql.Identifier(name)) for name, kind in part
        ),
        sql.SQL(operator),  # type: ignore[arg-type]
        sql.SQL(", ").join(
            sql.SQL("CAST({} AS {})").format(sql.Literal(text), sql.SQL(kind))  # type: ignore[arg-type]
            for text, (_, kind) in zip(texts, part, strict=True)
        ),
    )


AS_ITSELF = (
    "bigint",
    "integer",
    "smallint",
    "boolean",
    "date",
    "bytea",
    "timestamp",
    "numeric(",
    "double",
    "real",
)


def selected(column: tuple[str, str]) -> sql.Composable:
    """The column as the sink has it: what Spark has no type for is text, by concat, which keeps char's blanks."""
    name, kind = column
    if kind.startswith(AS_ITSELF) and not kind.endswith("[]"):
        return sql.Identifier(name)
    return sql.SQL("CASE WHEN {0} IS NOT NULL THEN concat({0}) END").format(sql.Identifier(name))


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)  # NaN equals itself, -0.0 is not 0.0
    return str(value) if isinstance(value, UUID) else value
