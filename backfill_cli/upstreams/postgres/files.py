"""Net changes as Parquet files, as fast to write and to load as staging's own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.cdc.net import UNSENT, Entry, Key, NeedsAll, Row
from backfill_cli.contracts import own
from backfill_cli.errors import BadData, Transient, in_config
from backfill_cli.formats.parquet_writer import encoding
from backfill_cli.model.plan import StagedFile
from backfill_cli.upstreams.postgres.net import NetTable
from backfill_cli.upstreams.postgres.types import arrow_type
from backfill_cli.upstreams.postgres.values import as_arrow, from_text
from backfill_cli.upstreams.postgres.window import TakeRequest

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 100_000
"""Rows converted to Arrow at a time."""


class TableFiles:
    """A table's files in the request's folder. changed, deleted: how many rows they have, by op. partial: the
    columns that some row omits.
    """

    def __init__(self, number: int, request: TakeRequest) -> None:
        self._begin = f"log-{request.attempt}-{number}"
        self._folder = Path(request.folder)
        self.files: list[StagedFile] = []
        self.changed = self.deleted = 0
        self.partial: set[str] = set()

    def add(self, net: NetTable, is_last: bool) -> None:
        """The rows that the table holds are in one more file, and no longer in memory."""
        try:
            missing = set(net.left_out())
        except BadData:
            if is_last:
                raise
            raise NeedsAll from None  # the row may still be deleted
        may_miss = {column.name for column in net.columns if column.toasts} - set(net.table.key)
        if not is_last or self.files:  # other files may omit other columns
            if not missing <= may_miss:
                raise NeedsAll
            missing = may_miss
        self.partial |= missing
        path = self._folder / f"{self._begin}-{len(self.files)}.parquet"
        self.files.append(StagedFile(path.name, 0))  # for `discard`, if writing fails
        changed = _write(net, path, bool(missing))
        self.files[-1] = StagedFile(path.name, path.stat().st_size)
        self.changed, self.deleted = self.changed + changed, self.deleted + len(net.entries) - changed
        net.entries, net.gaps, net.written = {}, False, True

    def discard(self) -> None:
        for one in self.files:
            (self._folder / one.path).unlink(missing_ok=True)
        self.files.clear()
        self.partial.clear()
        self.changed = self.deleted = 0


def _write(net: NetTable, path: Path, unsent: bool) -> int:
    """The table's changes are one file. Returns how many rows are no deletes. unsent: whether it has `own.UNSENT`.

    Raises BadData for values that Arrow cannot hold, Transient if the file cannot be written.
    """
    import pyarrow.parquet as pq

    schema = _schema(net, unsent)
    updated = 0
    with _writing(path):
        writer = pq.ParquetWriter(path, schema, **encoding(schema))
    entries = iter(net.entries.items())
    while group := list(islice(entries, GROUP_ROWS)):
        updated += sum(row is not None for _, (_, _, row) in group)
        table = _table(net, group, schema)
        with _writing(path):
            writer.write_table(table)
    with _writing(path):
        writer.close()
    return updated


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise Transient(
            f"staging file {path}: {exc}", in_config("free disk space there, or change job.staging")
        ) from exc


def _schema(net: NetTable, unsent: bool) -> "pa.Schema":
    import pyarrow as pa

    marks = [(own.OP, pa.string()), (own.SEQ, pa.int64()), (own.MS, pa.int64())]
    more = [(own.UNSENT, pa.list_(pa.string()))] if unsent else []
    return pa.schema([*marks, *more, *((column.name, arrow_type(column)) for column in net.columns)])


def _table(net: NetTable, entries: list[tuple[Key, Entry]], schema: "pa.Schema") -> "pa.Table":
    import pyarrow as pa

    keys, found = zip(*entries, strict=True)
    numbers, times, given = zip(*found, strict=True)
    marks: list[Sequence[Any]] = [["D" if row is None else "U" for row in given], numbers, times]
    rows = [row if row is not None else _key_alone(net, key) for key, row in zip(keys, given, strict=True)]
    left = _unsent(net, rows) if net.gaps else [None] * len(rows)
    if len(schema) > len(marks) + len(net.columns):
        marks.append(left)
    arrays = [pa.array(values, kind.type) for values, kind in zip(marks, schema, strict=False)]
    values = list(zip(*rows, strict=True))
    arrays += as_arrow(net.table.name, net.columns, values, from_text, lambda at: net.shown_key(keys[at]))
    return pa.Table.from_arrays(arrays, schema=schema)


def _key_alone(net: NetTable, key: Key) -> Row:
    row: Row = [None] * len(net.columns)
    for at, value in zip(net.key_at, net.values(key), strict=True):
        row[at] = value
    return row


def _unsent(net: NetTable, rows: list[Row]) -> list[list[str] | None]:
    """The names of each row's unsent columns; the row has NULL in their place."""
    left: list[list[str] | None] = []
    for at, row in enumerate(rows):
        missing = [column.name for column, value in zip(net.columns, row, strict=True) if value is UNSENT]
        left.append(missing or None)
        if missing:
            rows[at] = [None if value is UNSENT else value for value in row]
    return left
