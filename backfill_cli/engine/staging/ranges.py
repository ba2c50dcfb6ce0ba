"""Ranges of a partitioned log become files: those that workers produce, of all tables in one job.

A task reads ranges of several tables with one client, and writes a file for each table that it has rows of: events
as they come, changes netted by key. A window of few records is read in this process: a Spark job takes longer.
"""

import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc.net import are_distinct, last_rows
from backfill_cli.contracts import RangeTasks, TakenTable, own
from backfill_cli.contracts.decoder import Edges
from backfill_cli.engine.staging.changes import FOLDER
from backfill_cli.engine.staging.files import folder_made, footers, require_all
from backfill_cli.engine.staging.quarantine import side_name, unreadable
from backfill_cli.engine.staging.values import require_storable
from backfill_cli.engine.staging.workers import (
    NET_BYTES,
    File,
    divided,
    of_rows,
    told_by,
    visible,
)
from backfill_cli.errors import of_table
from backfill_cli.model.plan import StagedTable
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.failures import raising_in_worker
from backfill_cli.spark.row_counts import Count, place

if TYPE_CHECKING:
    import pyarrow as pa

HERE = 10_000
"""At most this many offsets are read in this process."""

BESIDE = 4_000_000
"""Of at most this many offsets, workers net parts together, which hold all keys; of more, Spark nets all rows."""

ORDER_BYTES = 256 << 20
"""Of keys and places that a worker holds for that."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where one table's rows go. key: by which changes are netted; empty for events. edges: see RangeTasks.

    path, apart: folders, the latter for rows that cannot be read. Tables share them, as each is synced: at 50
    tables, four folders for each took 0.7 s of a commit.
    """

    key: tuple[str, ...]
    path: Path
    apart: Path
    edges: "Callable[[pa.Table], Edges | None] | None" = None

    @property
    def order(self) -> Path:
        """The folder of keys and places in the log of rows that are not net yet."""
        return self.path.with_name("order")


@dataclass(frozen=True, slots=True)
class Written:
    """What was written. tables: events, and the side tables. changes: of the others. rows: by read (index).

    Nothing counts of a table with rows that lack columns, with a truncate, or whose order is in doubt: Spark nets
    them.
    """

    tables: Mapping[str, StagedTable]
    changes: Mapping[str, TakenTable]
    rows: Mapping[int, int]


def target(key: Sequence[str], folder: Path, edges: "Callable[[pa.Table], Edges | None] | None" = None) -> Target:
    """In the attempt's folder. key, edges: as in Target."""
    path = folder / FOLDER / "net" if key else folder / FOLDER / "events"
    return Target(tuple(key), path, folder / FOLDER / "apart", edges)


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
    orders = {one.order for one in targets.values() if one.key}
    for path in {path for one in targets.values() for path in (one.path, one.apart)} | orders:
        folder_made(path)
    alone, beside = len(tasks.parts) == 1, tasks.offsets <= BESIDE
    make = partial(_write, tasks.make, dict(targets), tuple(tables), tuple(where), alone, beside, place())
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
    again: list[_Parts] = []
    for name, one in targets.items():
        mine = [done["tables"][name] for done in told if name in done["tables"]]
        if not _are_whole(mine) or sum(done["order_bytes"] for done in mine) > ORDER_BYTES:
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
        changed = sum(done["changed"] for done in mine)
        whole = not files or (alone and all(done["whole"] for done in mine))
        changes[name] = TakenTable(files, whole, 0, changed, written - changed)
        if not whole and beside:
            again.append(_Parts(name, one, tuple(Path(file.path).name for file in files)))
    for part, done in zip(again, told_by(spark, _settle, again), strict=True):
        changes[part.table] = part.settled(changes[part.table], done, folder / FOLDER)
    for path in orders:
        shutil.rmtree(path, ignore_errors=True)  # a task that lost may still write there
    return Written(staged, changes, rows)


def _are_whole(parts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether what parts told of a table counts: no row lacks anything, and the order is without doubt."""
    ends: dict[int, str] = {}
    for done in parts:
        if done["lacking"] or not Edges(dict(done["begins"]), {}).follow(ends):
            return False
        ends |= dict(done["ends"])
    return True


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
    beside: bool,
    counted_at: str | None,
    part: tuple[int, Any],
) -> dict[str, Any]:
    """Runs in a worker: writes the part's rows, and returns how many each read had, and what of each table."""
    number, what = part
    so_far, held_bytes = Count(counted_at, number), 0
    rows: dict[int, int] = {}
    found: dict[str, _Table] = {}
    for read, batch in make(what):
        name = tables[read]
        with of_table(name):
            require_storable(batch, f"table {name!r}", rows.get(read, 0))
        rows[read] = rows.get(read, 0) + batch.num_rows
        so_far.add(batch.num_rows)
        if name not in found:
            found[name] = _Table(targets[name], where, number, beside)
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

    def __init__(self, target: Target, where: Sequence[str], number: int, beside: bool) -> None:
        self._key, self._where = target.key, where
        self._edges, self._beside = target.edges, beside
        self._begins: dict[int, str | None] = {}
        self._ends: dict[int, str] = {}
        name = f"part-{number}-{uuid.uuid4().hex}.parquet"
        self._good, self._bad = File(str(target.path), name), File(str(target.apart), name)
        self._order = File(str(target.order), name)
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._first: list[Any] | None = None
        self._whole, self._lacking = True, False
        self._changed = self._order_bytes = 0

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
            self._whole = False
            self._write(self._net(), self._beside)

    def close(self, alone: bool) -> dict[str, Any]:
        """What was written. alone: there is no other part."""
        if self._held:
            rows = self._net()
            if self._whole and alone:
                self._write(rows.drop_columns([own.SEQ, own.MS]), False)
            else:
                self._write(rows, self._beside)
        self._order.close()
        names = {"name": self._good.close(), "apart": self._bad.close()}
        told = {"written": self._good.rows, "changed": self._changed, "bad": self._bad.rows, "first": self._first}
        how = {"whole": self._whole, "lacking": self._lacking, "order_bytes": self._order_bytes}
        return {**names, **told, **how, "begins": list(self._begins.items()), "ends": list(self._ends.items())}

    def _net(self) -> "pa.Table":
        """The last change of each key among those that are held."""
        import pyarrow as pa

        batches = [batch for read in sorted(self._held) for batch in self._held[read]]
        self._held = {}
        rows = pa.Table.from_batches(batches)
        if self._edges is not None:
            self._judge(self._edges(rows))
            beside = [name for name in rows.column_names if own.is_own(name) and name not in _KEPT]
            rows = rows.drop_columns(beside)
        return last_rows(rows, self._key)

    def _judge(self, edges: Edges | None) -> None:
        """edges: of the next changes."""
        if edges is None or not edges.follow(self._ends):
            self._lacking = True
            return
        self._begins = {p: tx for p, tx in edges.first.items() if p not in self._ends} | self._begins
        self._ends |= edges.last

    def _write(self, rows: "pa.Table", beside: bool) -> None:
        """beside: whether the rows' places in the log stand in a file of their own."""
        import pyarrow.compute as pc

        self._changed += pc.sum(pc.equal(rows[own.OP], "U")).as_py() or 0
        if beside:
            order = rows.select([own.OP, own.SEQ, *self._key])
            self._order_bytes += order.nbytes
            _add(self._order, order)
            rows = rows.drop_columns([own.SEQ, own.MS])
        _add(self._good, rows)


_KEPT = (own.OP, own.SEQ, own.MS)


def _add(file: File, rows: "pa.Table") -> None:
    for batch in rows.to_batches():
        file.add(batch)


@dataclass(frozen=True, slots=True)
class _Parts:
    """A table's files, net each by itself, with the keys and places of their rows beside them."""

    table: str
    target: Target
    names: tuple[str, ...]

    def settled(self, found: TakenTable, told: Mapping[str, Any], taken: Path) -> TakenTable:
        """The net changes, once a worker has taken out what is not the last change of its key. found: before."""
        if not told:
            return replace(found, netted=True)
        gone = [self.target.path / old for old, new in zip(self.names, told["names"], strict=True) if new != old]
        for path in gone:
            path.unlink()
        files = visible(self.target.path, taken, told["names"])
        require_all(self.target.path, told["changed"] + told["deleted"], footers(taken, files, ()))
        return TakenTable(files, True, 0, told["changed"], told["deleted"])


def _settle(one: _Parts) -> dict[str, Any]:
    """Runs in a worker: files without the rows that are not the last change of their key, in place of those with.

    Returns the files' names, None for no row, and how many rows are changed and deleted; empty if all stay.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    key, orders = one.target.key, [one.target.order / name for name in one.names]
    keys = pa.concat_tables(pq.read_table(path, columns=list(key)) for path in orders)
    if are_distinct(keys, key):
        return {}
    order = pa.concat_tables(map(pq.read_table, orders))
    last = _are_last(order, key)
    names: list[str | None] = []
    begin = 0
    for name in one.names:
        with pq.ParquetFile(one.target.path / name) as parquet:
            kept = last.slice(begin, parquet.metadata.num_rows)
            begin += len(kept)
            if pc.all(kept).as_py():
                names.append(name)
                continue
            file = File(str(one.target.path), f"net-{uuid.uuid4().hex}.parquet")
            for batch in parquet.iter_batches():
                file.add(batch.filter(kept.slice(0, batch.num_rows)))
                kept = kept.slice(batch.num_rows)
            names.append(file.close())
    left = order.filter(last)
    changed = pc.sum(pc.equal(left[own.OP], "U")).as_py() or 0
    return {"names": names, "changed": changed, "deleted": left.num_rows - changed}


def _are_last(order: "pa.Table", key: Sequence[str]) -> "pa.Array":
    """Whether each row is the last change of its key. order: with `own.SEQ`, in any order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = order[own.SEQ].combine_chunks()
    parts = pa.table({one.name: pc.struct_field(place, one.name) for one in place.type})
    sorted_ = pc.sort_indices(parts, sort_keys=[(one.name, "ascending") for one in place.type])
    numbered = order.select(key).take(sorted_).append_column(own.SEQ, sorted_)
    last = last_rows(numbered, key)[own.SEQ]
    return pc.is_in(pa.array(range(order.num_rows), sorted_.type), last)
