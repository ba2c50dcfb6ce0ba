"""Ranges of a partitioned log become files: those that workers produce, of all tables in one job.

A task reads ranges of several tables with one client, and writes a file for each table that it has rows of: events
as they come, changes netted by key. A window of few records is read in this process: a Spark job takes longer.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc.net import last_rows
from backfill_cli.contracts import ArrowTasks, RangeTasks, TakenTable, own
from backfill_cli.engine.staging.changes import FOLDER
from backfill_cli.engine.staging.files import folder_made, footers, require_all
from backfill_cli.engine.staging.quarantine import side_name, unreadable
from backfill_cli.engine.staging.values import require_storable
from backfill_cli.engine.staging.workers import (
    NET_BYTES,
    NET_FILES_BYTES,
    File,
    LogTasks,
    divided,
    files_together,
    net,
    of_rows,
    told_by,
    visible,
)
from backfill_cli.model.plan import StagedTable
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.failures import raising_in_worker
from backfill_cli.spark.row_counts import Count, place

if TYPE_CHECKING:
    import pyarrow as pa

HERE = 10_000
"""At most this many offsets are read in this process."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where one table's rows go. key: by which changes are netted; empty for events. doubts: see RangeTasks.

    path, apart: folders, the latter for rows that cannot be read. Tables share them, as each is synced: at 50
    tables, four folders for each took 0.7 s of a commit.
    """

    key: tuple[str, ...]
    path: Path
    apart: Path
    doubts: "Callable[[pa.Table, bool], bool] | None" = None


@dataclass(frozen=True, slots=True)
class Written:
    """What was written. tables: events, and the side tables. changes: of the others. rows: by read (index).

    Nothing counts of a table with rows that lack columns, with a truncate, or whose order is in doubt: Spark nets
    them.
    """

    tables: Mapping[str, StagedTable]
    changes: Mapping[str, TakenTable]
    rows: Mapping[int, int]


def target(key: Sequence[str], folder: Path, doubts: "Callable[[pa.Table, bool], bool] | None" = None) -> Target:
    """In the attempt's folder. key, doubts: as in Target."""
    path = folder / FOLDER / "net" if key else folder / FOLDER / "events"
    return Target(tuple(key), path, folder / FOLDER / "apart", doubts)


def write(
    spark: SparkSession,
    tasks: RangeTasks,
    targets: Mapping[str, Target],
    tables: Sequence[str],
    where: Sequence[str],
    quarantines: bool,
    folder: Path,
) -> Written:
    """The rows are files. tables: whose each read is. where: the columns that say where a row's record is.

    Raises BadData for rows that cannot be read, unless the job keeps them apart; Transient when a folder cannot be
    created, or when the visible files do not hold what was written; a failure of Spark passes through.
    """
    for path in {path for one in targets.values() for path in (one.path, one.apart)}:
        folder_made(path)
    alone = len(tasks.parts) == 1
    begun = tasks.begun if any(one.doubts for one in targets.values()) else frozenset()
    make = partial(_write, tasks.make, dict(targets), tuple(tables), tuple(where), alone, begun, place())
    if tasks.offsets <= HERE and arrow_tasks.is_local(spark):
        with raising_in_worker():
            told = [make(part) for part in enumerate(tasks.parts)]
    else:
        told = told_by(spark, make, tuple(enumerate(tasks.parts)))
    rows: dict[int, int] = {}
    for read, count in (one for done in told for one in done["rows"]):
        rows[read] = rows.get(read, 0) + count
    staged: dict[str, StagedTable] = {}
    changes: dict[str, TakenTable] = {}
    again: dict[str, LogTasks] = {}
    for name, one in targets.items():
        mine = [done["tables"][name] for done in told if name in done["tables"]]
        if any(done["lacking"] for done in mine):
            rows = {read: count for read, count in rows.items() if tables[read] != name}
            continue
        staged |= _apart(name, one, mine, quarantines, folder)
        taken = folder / FOLDER if one.key else folder
        files = visible(one.path, taken, (done["name"] for done in mine))
        written = sum(done["written"] for done in mine)
        require_all(one.path, written, footers(taken, files, ()))
        if not one.key:
            staged[name] = StagedTable(inserts=files, rows=written)
            continue
        changed, whole = sum(done["changed"] for done in mine), alone and all(done["whole"] for done in mine)
        changes[name] = TakenTable(files, whole, 0, changed, written - changed)
        small = sum(file.size_bytes for file in files) <= NET_FILES_BYTES
        if not whole and small and all(done["ordered"] for done in mine):
            empty = ArrowTasks(tasks.make, (), tasks.schemas[name])
            again[name] = files_together(LogTasks(empty, one.key, one.path, one.apart), folder / FOLDER, files)
    for name, done in (net(spark, again, folder / FOLDER, folder) if again else {}).items():
        changes[name] = done.table
    return Written(staged, changes, rows)


def _apart(
    name: str, one: Target, mine: Sequence[Mapping[str, Any]], quarantines: bool, folder: Path
) -> Mapping[str, StagedTable]:
    """The side table's rows."""
    bad = sum(done["bad"] for done in mine)
    first = min((tuple(done["first"]) for done in mine if done["first"]), default=None)
    if first is not None and not quarantines:
        raise unreadable(name, bad, first)
    files = visible(one.apart, folder, (done["apart"] for done in mine))
    require_all(one.apart, bad, footers(folder, files, ()))
    return {side_name(name): StagedTable(inserts=files, rows=bad)} if bad else {}


def _write(
    make: Any,
    targets: Mapping[str, Target],
    tables: Sequence[str],
    where: Sequence[str],
    alone: bool,
    begun: frozenset[int],
    counted_at: str | None,
    part: tuple[int, Any],
) -> dict[str, Any]:
    """Runs in a worker: writes the part's rows, and returns how many each read had, and what of each table."""
    number, what = part
    so_far, held_bytes = Count(counted_at, number), 0
    rows: dict[int, int] = {}
    found: dict[str, _Table] = {}
    for read, batch in make(what):
        require_storable(batch, f"table {tables[read]!r}", rows.get(read, 0))
        rows[read] = rows.get(read, 0) + batch.num_rows
        so_far.add(batch.num_rows)
        name = tables[read]
        if name not in found:
            found[name] = _Table(targets[name], where, number, number in begun)
        held_bytes += found[name].add(read, batch)
        if held_bytes > NET_BYTES:
            for one in found.values():
                one.flush()
            held_bytes = 0
    return {"rows": list(rows.items()), "tables": {name: one.close(alone) for name, one in found.items()}}


class _Table:
    """One table's rows of a part.

    Changes are held by read until the end: in the order of the reads they are in that of the log. What had to be
    written earlier is net only by itself.
    """

    def __init__(self, target: Target, where: Sequence[str], number: int, begun: bool) -> None:
        self._key, self._where = target.key, where
        self._doubts, self._begun = target.doubts, begun
        name = f"part-{number}-{uuid.uuid4().hex}.parquet"
        self._good, self._bad = File(str(target.path), name), File(str(target.apart), name)
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._first: list[Any] | None = None
        self._whole = self._ordered = True
        self._changed, self._flushed, self._lacking = 0, -1, False

    def add(self, read: int, batch: "pa.RecordBatch") -> int:
        """Returns how many bytes are held of it."""
        import pyarrow.compute as pc

        readable, bad = divided(batch, self._where)
        self._bad.add(bad)
        if bad.num_rows:
            first = [bad.column(name)[0].as_py() for name in (*self._where, "reason")]
            self._first = first if self._first is None else min(self._first, first)
        if not self._key:
            self._good.add(readable)
            return 0
        if own.UNSENT in readable.schema.names:
            self._lacking = self._lacking or len(pc.list_flatten(readable.column(own.UNSENT))) > 0
            readable = readable.drop_columns([own.UNSENT])
        kept = of_rows(readable)
        self._lacking = self._lacking or kept.num_rows < readable.num_rows
        readable = kept
        self._held.setdefault(read, []).append(readable)
        return int(readable.nbytes)

    def flush(self) -> None:
        """Writes what is held."""
        if self._held:
            self._ordered = self._ordered and len(self._held) == 1 and min(self._held) >= self._flushed
            self._whole, self._flushed = False, max(self._held)
            self._write(self._net())

    def close(self, alone: bool) -> dict[str, Any]:
        """What was written. alone: there is no other part."""
        if self._held:
            self._ordered = self._ordered and (self._whole or min(self._held) >= self._flushed)
            rows = self._net()
            self._write(rows.drop_columns([own.SEQ, own.MS]) if self._whole and alone else rows)
        names = {"name": self._good.close(), "apart": self._bad.close()}
        told = {"written": self._good.rows, "changed": self._changed, "bad": self._bad.rows, "first": self._first}
        return {**names, **told, "whole": self._whole, "ordered": self._ordered, "lacking": self._lacking}

    def _net(self) -> "pa.Table":
        """The last change of each key among those that are held."""
        import pyarrow as pa

        batches = [batch for read in sorted(self._held) for batch in self._held[read]]
        self._held = {}
        rows = pa.Table.from_batches(batches)
        if self._doubts is not None:
            self._lacking = self._lacking or self._doubts(rows, self._begun)
            self._begun = True
            rows = rows.drop_columns([name for name in rows.column_names if name == own.TRACE])
        return last_rows(rows, self._key)

    def _write(self, rows: "pa.Table") -> None:
        import pyarrow.compute as pc

        self._changed += pc.sum(pc.equal(rows[own.OP], "U")).as_py() or 0
        for batch in rows.to_batches():
            self._good.add(batch)
