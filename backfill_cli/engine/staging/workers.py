"""Rows that Spark's Python workers produce are written there, as Parquet files of the task that produced them.

Moving them into the JVM for writing costs ten times as much CPU as writing them here (measured: 1.3 and 0.1 µs per
row of 100 bytes). Each attempt of a task has its own files; only what a task returns, their names and row counts,
is used, so files of losing attempts are ignored.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc.net import last_rows
from backfill_cli.contracts import ArrowTasks, Piece, Source, TakenTable, own
from backfill_cli.engine.staging.files import Footers, folder_made, footers, require_all
from backfill_cli.engine.staging.values import require_storable
from backfill_cli.errors import Fatal, HistoryGone, of_table
from backfill_cli.formats import row_groups
from backfill_cli.formats.parquet_writer import encoding, writing
from backfill_cli.model.plan import SnapshotRead, StagedFile, StagedTable
from backfill_cli.model.schema import columns_of, names_of, schema_text
from backfill_cli.spark import arrow_tasks, row_counts
from backfill_cli.spark.api import SparkSession

if TYPE_CHECKING:
    import pyarrow as pa

Make = Callable[[Any], "Iterator[pa.RecordBatch]"]

_GROUP_ROWS = 250_000
_GROUP_BYTES = 64 << 20
"""Batches are collected until they make a row group of this size; larger groups load no faster."""


@dataclass(frozen=True, slots=True)
class Written:
    """files: in the order of the parts, found: their footers. rows: by read (index).

    apart: the files of rows that cannot be read, bad: how many these are, first: (partition, offset, why) of one.
    """

    files: tuple[StagedFile, ...]
    rows: dict[int, int]
    found: Footers
    apart: tuple[StagedFile, ...] = ()
    bad: int = 0
    first: tuple[int, int, str] | None = None


def made_in_workers(
    upstream: Source, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]
) -> ArrowTasks | None:
    """See `Source.batches`; None if workers cannot produce the rows."""
    if not write_here(spark):
        return None
    return upstream.batches(table, reads, arrow_tasks.cores(spark))


def write_here(spark: SparkSession) -> bool:
    """Whether workers can write files that Spark would have written: they know us, and no old date is changed."""
    return arrow_tasks.workers_know_us(spark) and row_groups.rebased_by(spark) is None


def storable(make: Make, piece: Piece) -> "Iterator[pa.RecordBatch]":
    """The batches of a piece. Raises BadData for a value that no sink takes, naming its row in the piece."""
    before = 0
    for batch in make(piece.what):
        require_storable(batch, piece.what, before)
        before += batch.num_rows
        yield batch


def write(
    spark: SparkSession,
    tasks: ArrowTasks,
    path: Path,
    folder: Path,
    columns: Sequence[str] = (),
    apart: Path | None = None,
    place: Sequence[str] = (),
) -> Written:
    """The rows are files in the new folder `path`, named relative to the attempt's `folder`.

    columns: those whose NULLs are counted. apart: the new folder for files of rows that cannot be read, place: the
    columns that say where such a row is. Raises Transient when a folder cannot be created, or when the visible
    files do not hold the rows that were written; a failure of Spark passes through.
    """
    folder_made(path)
    if apart is not None and not {own.ERROR, own.QUARANTINED}.isdisjoint(names_of(tasks.schema)):
        folder_made(apart)
    make = partial(_write, tasks.make, str(path), str(apart), tuple(place), row_counts.place())
    told = told_by(spark, make, tuple(enumerate(tasks.parts)))
    rows: dict[int, int] = {}
    for read, count in (one for done in told for one in done["rows"]):
        rows[read] = rows.get(read, 0) + count
    files = visible(path, folder, (done["name"] for done in told))
    bad = () if apart is None else visible(apart, folder, (done["apart"] for done in told))
    found, found_bad = footers(folder, files, columns), footers(folder, bad, ())
    require_all(path, sum(rows.values()), found, found_bad)
    first = min((tuple(done["first"]) for done in told if done["first"]), default=None)
    return Written(files, rows, found, bad, found_bad.rows, first)


def told_by(spark: SparkSession, make: Callable[[Any], Any], parts: Sequence[Any]) -> list[dict[str, Any]]:
    """What `make` tells of each part, in their order, once it has written it. make: runs in a worker."""
    if not parts:
        return []
    numbered = tuple(enumerate(parts))
    done = arrow_tasks.frame(spark, partial(_telling, make), numbered, "part INT, told STRING").toArrow()
    # sorted here: Spark would compute all parts twice, the first time to find its sort ranges
    return [json.loads(told) for _, told in sorted(zip(*done.to_pydict().values(), strict=True))]


def _telling(make: Callable[[Any], Any], part: tuple[int, Any]) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    kinds = pa.schema([("part", pa.int32()), ("told", pa.string())])
    yield pa.RecordBatch.from_pydict({"part": [part[0]], "told": [json.dumps(make(part[1]))]}, kinds)


def visible(path: Path, folder: Path, names: Iterable[str | None]) -> tuple[StagedFile, ...]:
    """Those of the files in `path` that exist here."""
    paths = dict.fromkeys(path / name for name in names if name is not None)
    there = [one for one in paths if one.exists()]
    return tuple(StagedFile(str(one.relative_to(folder)), one.stat().st_size) for one in there)


def _write(
    make: Make,
    path: str,
    apart: str,
    place: tuple[str, ...],
    counted_at: str | None,
    part: tuple[int, Sequence[Piece]],
) -> dict[str, Any]:
    """Runs in a worker: writes the part's rows to one file, those that cannot be read to another.

    Returns their names (None for no row), the rows of each read, and the first row that cannot be read.
    """
    number, pieces = part
    name = f"part-{number}-{uuid.uuid4().hex}.parquet"
    good, bad = File(path, name), File(apart, name)
    rows, first = dict.fromkeys((piece.read for piece in pieces), 0), None
    so_far = row_counts.Count(counted_at, number)
    for piece in pieces:
        for batch in row_counts.counted(storable(make, piece), so_far):
            rows[piece.read] += batch.num_rows
            readable, unreadable = divided(batch, place)
            good.add(readable)
            bad.add(unreadable)
            if first is None and unreadable.num_rows:
                first = [unreadable.column(name)[0].as_py() for name in (*place, "reason")]
    return {"name": good.close(), "apart": bad.close(), "rows": list(rows.items()), "first": first}


def divided(batch: "pa.RecordBatch", place: Sequence[str]) -> "tuple[pa.RecordBatch, pa.RecordBatch]":
    """The rows that can be read, without marks, and the others as `(place…, value, reason)`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [name for name in batch.schema.names if name not in _MARKS]
    mark = next((name for name in (own.QUARANTINED, own.ERROR) if name in batch.schema.names), None)
    if mark is None or batch.column(mark).null_count == batch.num_rows:
        return batch.select(names), batch.slice(0, 0)
    bad = batch.filter(pc.is_valid(batch.column(mark)))
    readable = batch.filter(pc.is_null(batch.column(mark)))
    if mark == own.QUARANTINED:
        return readable.select(names), pa.RecordBatch.from_struct_array(bad.column(mark))
    columns = {name: bad.column(name) for name in place}
    kept = {"value": bad.column(own.RAW), "reason": bad.column(own.ERROR)}
    return readable.select(names), pa.RecordBatch.from_pydict({**columns, **kept})


_MARKS = (own.READ, own.ERROR, own.RAW, own.QUARANTINED)


@dataclass(frozen=True, slots=True)
class Net:
    """One table's changes, netted and written by workers.

    lacking: columns that some rows lack, truncates: whether a change is a truncate; the files do not count then.
    nulls: how many changes have NULL in each column of the key. apart: the files of those that cannot be read.
    """

    table: TakenTable
    nulls: tuple[int, ...]
    apart: StagedTable
    lacking: tuple[str, ...] = ()
    truncates: bool = False


def nets(tasks: ArrowTasks, key: Sequence[str]) -> bool:
    """Whether workers can net these changes: Arrow does not compare nested keys."""
    return nets_by(tasks.schema, key)


def nets_by(schema: str, key: Sequence[str]) -> bool:
    columns = columns_of(schema)
    return all(isinstance(columns[name]["type"], str) for name in key)


@dataclass(frozen=True, slots=True)
class LogTasks:
    """One table's changes, to be netted by `key` and written to the new folder `path`; apart: as for `write`."""

    tasks: ArrowTasks
    key: tuple[str, ...]
    path: Path
    apart: Path


def net(
    spark: SparkSession,
    tables: Mapping[str, LogTasks],
    taken: Path,
    folder: Path,
    counted_at: str | None = None,
) -> Mapping[str, Net]:
    """The changes of these tables are files, net where they fit into a worker's memory; in one job.

    What several parts have netted, each by itself, is netted together in a second one. Files are named relative to
    `taken`, those of changes that cannot be read to `folder`. counted_at: see `row_counts`. Raises as `write`.
    """
    parts = []
    for name, one in tables.items():
        folder_made(one.path)
        if own.QUARANTINED in names_of(one.tasks.schema):
            folder_made(one.apart)
        alone = len(one.tasks.parts) == 1
        for number, pieces in enumerate(one.tasks.parts):
            parts.append((name, number, alone, replace(one, tasks=replace(one.tasks, parts=(pieces,)))))
    told = told_by(spark, partial(_net, counted_at), tuple(enumerate(parts)))
    nets = {
        name: _net_of(one, taken, folder, [done for done in told if done["table"] == name])
        for name, one in tables.items()
    }
    again = {
        name: files_together(one, taken, nets[name].table.files)
        for name, one in tables.items()
        if len(one.tasks.parts) > 1 and sum(file.size_bytes for file in nets[name].table.files) <= NET_FILES_BYTES
    }
    for name, done in (net(spark, again, taken, folder) if again else {}).items():
        changes = nets[name].table.changes
        nets[name] = replace(nets[name], table=replace(done.table, changes=changes))
        shutil.rmtree(tables[name].path)
    return nets


def files_together(table: LogTasks, taken: Path, files: Sequence[StagedFile]) -> LogTasks:
    """What nets the parts of a table, which are these files, as one."""
    pieces = tuple(Piece(0, str(taken / file.path)) for file in files)
    tasks = ArrowTasks(_batches_of, (pieces,), schema_text({}))
    return replace(table, tasks=tasks, path=table.path.with_name("together"))


def _batches_of(path: str) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield from file.iter_batches()


def _net_of(table: LogTasks, taken: Path, folder: Path, told: Sequence[Mapping[str, Any]]) -> Net:
    files = visible(table.path, taken, (one["name"] for one in told))
    apart = visible(table.apart, folder, (one["apart"] for one in told))
    changes, bad, changed, deleted = (
        sum(one[what] for one in told) for what in ("changes", "bad", "changed", "deleted")
    )
    require_all(table.path, changed + deleted, footers(taken, files, ()))
    require_all(table.apart, bad, footers(folder, apart, ()))
    whole = len(told) <= 1 and all(one["whole"] for one in told)
    nulls = tuple(sum(one["nulls"][at] for one in told) for at in range(len(table.key)))
    lacking = tuple(dict.fromkeys(name for one in told for name in one["lacking"]))
    done = TakenTable(files, whole, changes, changed, deleted)
    truncates = any(one["truncates"] for one in told)
    return Net(done, nulls, StagedTable(inserts=apart, rows=bad), lacking, truncates)


def _net(counted_at: str | None, part: "tuple[int, tuple[str, int, bool, LogTasks]]") -> dict[str, Any]:
    """Runs in a worker: writes the part's net changes to one file, those that cannot be read to another.

    part: its table and number, whether it is alone, and what to do, with its pieces only. Returns the files' names
    (None for no row), how many changes there were, and without a key, whether each key occurs once in it, the
    columns that some rows lack, and whether there was a truncate.
    """
    with of_table(part[1][0], *LOG_FAILS):
        return _net_part(counted_at, part)


def _net_part(counted_at: str | None, part: "tuple[int, tuple[str, int, bool, LogTasks]]") -> dict[str, Any]:
    import pyarrow.compute as pc

    at, (table, number, alone, one) = part
    key, (pieces,) = one.key, one.tasks.parts
    name = f"part-{number}-{uuid.uuid4().hex}.parquet"
    good, bad = File(str(one.path), name), File(str(one.apart), name)
    changes, nulls, so_far = 0, [0] * len(key), row_counts.Count(counted_at, at)
    lacking: dict[str, None] = {}
    truncates = False

    def readable() -> "Iterator[pa.RecordBatch]":
        nonlocal changes, truncates
        for piece in pieces:
            for batch in row_counts.counted(storable(one.tasks.make, piece), so_far):
                rows, unreadable = divided(batch, ())
                bad.add(unreadable)
                changes += rows.num_rows
                there = rows.num_rows
                rows = of_rows(rows)
                truncates = truncates or rows.num_rows < there
                for i, column in enumerate(key):
                    nulls[i] += rows.column(column).null_count
                if own.UNSENT in rows.schema.names:
                    lacking.update(dict.fromkeys(pc.unique(pc.list_flatten(rows[own.UNSENT])).to_pylist()))
                    rows = rows.drop_columns([own.UNSENT])
                if rows.num_rows:
                    yield rows

    tables = last_of(readable(), key)
    held = list(islice(tables, 2))
    whole, changed = len(held) < 2, 0
    for rows in chain(held, tables):
        changed += pc.sum(pc.equal(rows[own.OP], "U")).as_py() or 0
        for batch in (rows.drop_columns([own.SEQ, own.MS]) if whole and alone else rows).to_batches():
            good.add(batch)
    names = {"table": table, "name": good.close(), "apart": bad.close(), "whole": whole, "nulls": nulls}
    counts = {"changes": changes, "bad": bad.rows, "changed": changed, "deleted": good.rows - changed}
    return {**names, **counts, "lacking": list(lacking), "truncates": truncates}


LOG_FAILS = (Fatal, HistoryGone)
"""What a table's own files of changes can fail with, beside bad data."""


def of_rows(changes: "pa.RecordBatch") -> "pa.RecordBatch":
    """The changes without truncates, which are of no row."""
    import pyarrow.compute as pc

    emptied = pc.equal(changes[own.OP], "T")
    return changes.filter(pc.invert(emptied)) if pc.any(emptied).as_py() else changes


def last_of(batches: "Iterator[pa.RecordBatch]", key: Sequence[str]) -> "Iterator[pa.Table]":
    """The last change of each key; in several tables, each net by itself, if one would be too large."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > NET_BYTES:
            yield last_rows(pa.Table.from_batches(held), key)
            held, size = [], 0
    if held:
        yield last_rows(pa.Table.from_batches(held), key)


NET_BYTES = 256 << 20
"""Changes that a worker holds to net them."""

NET_FILES_BYTES = 64 << 20
"""Their size in files, about."""


class File:
    """A Parquet file that exists once it has a row. rows: so far. Raises Transient when it cannot be written."""

    def __init__(self, folder: str, name: str) -> None:
        self._path, self._name = f"{folder}/{name}", name
        self._writer: Any = None
        self._held: list[pa.RecordBatch] = []
        self.rows = self._rows = self._size = 0

    def add(self, batch: "pa.RecordBatch") -> None:
        if not batch.num_rows:
            return
        if self._rows + batch.num_rows > _GROUP_ROWS or self._size + batch.nbytes > _GROUP_BYTES:
            self._write()
        self._held.append(batch)
        self.rows += batch.num_rows
        self._rows, self._size = self._rows + batch.num_rows, self._size + batch.nbytes

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._held:
            return
        group = pa.Table.from_batches(self._held)
        with writing(self._path):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, group.schema, **encoding(group.schema))
            self._writer.write_table(group, row_group_size=_GROUP_ROWS)
        self._held, self._rows, self._size = [], 0, 0

    def close(self) -> str | None:
        """The file's name; None if it had no row."""
        self._write()
        if self._writer is None:
            return None
        with writing(self._path):
            self._writer.close()
        return self._name
