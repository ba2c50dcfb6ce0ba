"""A database with a log, in a folder: what one adds to `cdc/`. Its rows are what its log comes to.

log.jsonl has a transaction a line: `[ms, [[op, before, after], …]]`; a position is the number of lines before it.
lease-NAME.json says up to where the lease's owner has the log, and under which mark it was made.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from backfill_cli.cdc import ranges, window
from backfill_cli.cdc.files import LogTable, NetTable
from backfill_cli.cdc.lease import LogLease
from backfill_cli.cdc.ranges import KeyRange
from backfill_cli.cdc.source import LogSource, in_worker, place_of
from backfill_cli.cdc.window import TakenWindow, Window, WindowRequest
from backfill_cli.errors import START_OVER, HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.model.position import Cursor, Position
from backfill_cli.model.schema import field, schema_text
from backfill_cli.model.upstream import Pin, UpstreamView
from backfill_cli.spark.api import SparkSession

Change = tuple[str, dict[str, Any] | None, dict[str, Any] | None]
Transaction = tuple[int, list[Change]]


@dataclass(frozen=True, slots=True)
class ToyColumn:
    name: str
    spark: str
    arrow: str


COLUMNS = (ToyColumn("id", "long", "int64"), ToyColumn("name", "string", "string"))


@dataclass(frozen=True, slots=True)
class ToyDatabase:
    """One table `orders (id BIGINT, name STRING)`, by id."""

    folder: str

    def commit(self, changes: Sequence[Change]) -> None:
        with (Path(self.folder) / "log.jsonl").open("a") as log:
            log.write(json.dumps([time.time_ns() // 1_000_000, changes]) + "\n")

    def log(self) -> list[Transaction]:
        path = Path(self.folder) / "log.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows(self, keys: KeyRange = KeyRange(None, None)) -> list[dict[str, Any]]:  # noqa: B008
        """The rows with these keys as they are now, in order."""
        table: dict[int, dict[str, Any]] = {}
        for _, changes in self.log():
            for _, before, after in changes:
                if before is not None:
                    del table[before["id"]]
                if after is not None:
                    table[after["id"]] = after
        return [table[key] for key in sorted(table) if covers(keys, key)]


def covers(keys: KeyRange, key: int) -> bool:
    after, up_to = keys
    return (after is None or key > int(after)) and (up_to is None or key <= int(up_to))


# -- in a worker --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToyChunk:
    database: ToyDatabase
    keys: KeyRange


def read_chunk(chunk: ToyChunk) -> Iterator[pa.RecordBatch]:
    types = pa.schema([(column.name, column.arrow) for column in COLUMNS])
    yield pa.RecordBatch.from_pylist(chunk.database.rows(chunk.keys), types)


class ToyTable(NetTable[ToyColumn]):
    def types(self) -> list[pa.DataType]:
        return [pa.type_for_alias(column.arrow) for column in self.columns]

    def arrays(self, values: Sequence[Sequence[Any]], key: Any) -> list[pa.Array]:
        return [pa.array(part, kind) for part, kind in zip(values, self.types(), strict=True)]


class ToyWindow(Window[int, ToyColumn]):
    def __init__(self, database: ToyDatabase, request: WindowRequest[ToyColumn], bounds: window.Bounds) -> None:
        super().__init__(request, bounds, {table.id: ToyTable(table) for table in request.tables})
        self._database = database

    def read(self) -> int:
        (net,) = self.tables.values()
        for at, (ms, changes) in enumerate(self._database.log()[: self.bounds.up_to], 1):
            if at <= self.request.after:
                continue
            for _, before, after in changes:
                self.number += 1
                net.changes += 1
                old, new = ([*row.values()] if row else None for row in (before, after))
                if new is None:
                    net.delete(old or [], self.number, ms)
                elif net.update(new, False, old, True, self.number, ms):
                    self.number += 1
            if self.count(at, ms, at):
                return at
            self.spill()
        return self.bounds.up_to

    def keep_covered(self, net: NetTable[ToyColumn], covered: Sequence[KeyRange]) -> None:
        entries = net.entries.items()
        net.entries = {key: entry for key, entry in entries if any(covers(keys, key) for keys in covered)}


@dataclass(frozen=True, slots=True)
class ToyTake:
    database: ToyDatabase
    window: WindowRequest[ToyColumn]


def take(request: ToyTake) -> TakenWindow[ToyColumn]:
    return window.take(request.window, lambda asked, bounds: ToyWindow(request.database, asked, bounds))


# -- the lease, and the source ------------------------------------------------------------------------------------


class ToyLease(LogLease):
    def __init__(self, database: ToyDatabase, name: str, limit_bytes: int | None) -> None:
        super().__init__(f"lease {name!r}", limit_bytes)
        self.database, self._name = database, name
        self._file = Path(database.folder) / f"lease-{name}.json"

    def held(self) -> dict[str, Any]:
        """`{at, mark}`, empty if there is none."""
        found: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found

    def _write(self, at: int, mark: str) -> None:
        self._file.write_text(json.dumps({"at": at, "mark": mark}))

    def preview(self) -> Sequence[str]:
        return [f"start will create {self._called}"]

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        return [f"rm {self._file}"]

    def leftovers(self, mark: str) -> Sequence[str]:
        return [self._called] if self.held().get("mark") == mark else []

    def _require_same(self, pin: Pin) -> None:
        if json.loads(pin.identity)["folder"] != self.database.folder:
            raise StateConflict("the options lead to another folder")

    def _make(self, mark: str) -> None:
        self._sweep(mark)
        if self.held():
            raise UsageError(f"{self._called} exists, but this job did not create it")
        self._write(len(self.database.log()), mark)

    def _unmark(self, mark: str) -> None:
        self._write(self.held()["at"], "")

    def _sweep(self, mark: str) -> None:
        if self.held().get("mark") == mark:
            self._remove()

    def _remove(self) -> None:
        self._require_free()
        self._file.unlink(missing_ok=True)

    def _require_free(self) -> None:
        if self._file.with_suffix(".busy").exists():
            raise Transient(f"{self._called} is being read")

    def _held_bytes(self, at: int) -> int:
        held = self.held()
        if not held or held["at"] > at:
            raise HistoryGone(f"{self._called} does not hold what follows {at}", START_OVER)
        return sum(len(json.dumps(one)) for one in self.database.log()[held["at"] :])


class ToySource(ToyLease, LogSource[ToyColumn]):
    log = "toy"

    def __init__(self, database: ToyDatabase, name: str = "job", limit_bytes: int | None = None) -> None:
        ToyLease.__init__(self, database, name, limit_bytes)
        LogSource.__init__(self, "the log's lines", read_chunk)
        self.lease = self

    def pin(self) -> Pin:
        rows, at = len(self.database.rows()), self.held().get("at", len(self.database.log()))
        splits = tuple(ranges.splits("orders", rows, rows * 20, self._cuts))
        identity = json.dumps({"folder": self.database.folder})
        return self._follow(
            Pin(self._position(at), None, None, splits, {"orders": self._schema("orders")}, identity)
        )

    def restore(self, pin: Pin) -> None:
        self._require_same(pin)
        self._follow(pin)

    def observe(self, position: Position, snapshot_open: bool) -> UpstreamView:
        at, end = place_of(position), len(self.database.log())
        held_bytes = self._held_bytes(at) if self.held() else None
        return self._view(at, end, snapshot_open, oldest=self.held().get("at"), held_bytes=held_bytes)

    def _cuts(self, most: int) -> Sequence[Cursor]:
        keys = [row["id"] for row in self.database.rows()]
        return keys[:: max(1, len(keys) // (most + 1))][1 : most + 1]

    def _key_after(self, table: str, keys: KeyRange, rows: int) -> Cursor | None:
        found = self.database.rows(keys)[rows - 1 : rows]
        return found[0]["id"] if found else None

    def _chunk_rows(self, table: str) -> int:
        return ranges.chunk_rows(1, 1)

    def _chunk(self, table: str, keys: KeyRange) -> ToyChunk:
        return ToyChunk(self.database, keys)

    def _schema(self, table: str) -> str:
        return schema_text({column.name: field(column.name, column.spark) for column in COLUMNS})

    def _tables(self, schemas: Mapping[str, str]) -> tuple[LogTable[ToyColumn], ...]:
        return (LogTable("orders", 1, COLUMNS, ("id",)),)

    def _log_end(self) -> int:
        return len(self.database.log())

    def _first_ms(self, up_to: int) -> int | None:
        taken = self.database.log()[self.held().get("at", 0) : up_to]
        return taken[0][0] if taken else None

    def _take(self, spark: SparkSession, request: WindowRequest[ToyColumn]) -> TakenWindow[ToyColumn]:
        return in_worker(spark, take, ToyTake(self.database, request), TakenWindow[ToyColumn])

    def _advance(self, at: int) -> None:
        self._write(at, self.held()["mark"])
