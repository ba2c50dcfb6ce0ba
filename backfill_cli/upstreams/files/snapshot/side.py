"""Files as a snapshot side: the pinned files of each table, whether they are still the same, and their rows."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from backfill_cli.contracts import ArrowTasks, Extras, SnapshotSide, TableSpec
from backfill_cli.errors import START_OVER, BadData, Fatal, Hint, in_config, of_table
from backfill_cli.formats import row_groups, schemas
from backfill_cli.formats.listing import File, Listing, ValueInFolder, place, refuse_part_of_table
from backfill_cli.model.balanced import balanced
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.pushdown import Condition
from backfill_cli.model.schema import Columns, columns_of, schema_text
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin, SnapshotPin
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import OR_QUARANTINE, SAME_PACKAGE, spark_reading
from backfill_cli.upstreams.files.options import SnapshotFiles
from backfill_cli.upstreams.files.reading import folder_columns, lines, parquet_rows
from backfill_cli.upstreams.files.reading.footers import THREADS, footer, group_rows
from backfill_cli.upstreams.files.reading.parquet_rows import ParquetPart
from backfill_cli.upstreams.files.reading.text_rows import TextRows
from backfill_cli.upstreams.files.snapshot import pin as pins
from backfill_cli.upstreams.files.snapshot import scan
from backfill_cli.upstreams.files.snapshot.by_duckdb import rows_sql
from backfill_cli.upstreams.files.snapshot.scan import PINNED, Layout, choose, marked, parquet_frame, text_frame

_OR_TYPE = in_config("; or correct the column's type in upstream.snapshot.schema, then " + START_OVER)
_WATCHED = 1_000
"""Pinned files checked at each barrier, in rotation, with one stat each: writing a file in place does not change
its folder."""


class FilesSnapshot(SnapshotSide):
    """See contracts.SnapshotSide. Nothing is read before `pin` or `restore`."""

    keeps = "the snapshot's files until they are read"

    def __init__(
        self, options: SnapshotFiles, tables: Sequence[TableSpec], quarantines: bool | None = None
    ) -> None:
        """quarantines: whether rows that cannot be read are; None where they cannot be."""
        self._options = options
        self.extras = Extras(warnings=self._warnings, places=self._places, duckdb_sql=self._duckdb_sql)
        self._tables = {table.name: TableSnapshot(table, options, quarantines) for table in tables}
        self._unread: Collection[str] = self._tables.keys()

    def pin(self) -> SnapshotPin:
        found = {name: table.pin() for name, table in self._tables.items()}
        splits = tuple(split for part, _ in found.values() for split in part)
        schema = {name: schema_text(columns) for name, (_, columns) in found.items()}
        folders = {name: table.where.uri for name, table in self._tables.items()}
        return SnapshotPin(splits, schema, {"snapshot_folders": folders, "snapshot": pins.digests(splits)})

    def restore(self, pin: Pin) -> None:
        for name, table in self._tables.items():
            table.take(pin.splits, columns_of(pin.schema[name]))

    def read_on(self, tables: Collection[str]) -> None:
        self._unread = tables

    def check(self) -> None:
        for name in self._unread:
            self._tables[name].check()

    def closed(self, table: str, reads: Sequence[SnapshotRead]) -> Sequence[SnapshotRead]:
        return [self._tables[table].closed(read) for read in reads]

    def row_count(self, read: SnapshotRead) -> int | None:
        return self._tables[read.table].row_count(read)

    def leaves_rows_out(self, table: str) -> bool:
        return bool(self._tables[table].met())

    def scan(self, spark: SparkSession, table: str, reads: Sequence[SnapshotRead]) -> DataFrame:
        with spark_reading():
            return self._tables[table].scan(spark, reads)

    def batches(self, table: str, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        return self._tables[table].batches(reads, cores)

    def _duckdb_sql(self, table: str, types: Mapping[str, str]) -> str:
        found = self._tables[table]
        return rows_sql(self._options, found.where, list(found.files.values()), types)

    def _warnings(self) -> Sequence[str]:
        """For each table, which columns are read from the names of its folders."""
        found = {name: table.folders for name, table in self._tables.items() if table.folders}
        return [
            f"table '{name}': {', '.join(columns)} {'is' if len(columns) == 1 else 'are'} read from the names of "
            "folders; a NULL and an empty text are written alike there, and are NULL"
            for name, columns in found.items()
        ]

    def _places(self) -> Mapping[str, frozenset[str]]:
        """The files of each table; nothing for one table alone, which shares none."""
        if len(self._tables) < 2:
            return {}
        return {
            name: pins.real_paths((file.path for file in table.files.values()), table.where)
            for name, table in self._tables.items()
        }


class TableSnapshot:
    """The snapshot of one table."""

    def __init__(self, table: TableSpec, options: SnapshotFiles, quarantines: bool | None) -> None:
        self.folders = pins.declared(options.folders, table.name, folder_columns.OPTION)
        self.where = replace(place(options.path, table.name), valued=bool(self.folders))
        self._table, self._options, self._quarantines = table, options, quarantines
        self._listing = Listing(self.where)
        self.files: dict[str, File] = {}
        self._names: tuple[str, ...] = ()
        self._rows: dict[str, int] = {}
        self._columns: Columns = {}
        self._compared: object = None
        self._next = 0
        self._layouts: dict[str, Layout] = {}
        self._in_files: frozenset[str] | None = None

    def pin(self) -> tuple[list[Split], Columns]:
        """The current splits and the columns. Raises as contracts.SnapshotSide.pin does."""
        refuse_part_of_table(self.where)
        try:
            files = list(self._listing.files().values())
        except ValueInFolder as exc:
            if exc.connect:
                raise
            there = Listing(replace(self.where, valued=True)).files().values()
            ddl = folder_columns.guessed(there)
            raise BadData(exc.message, "name such columns: " + folder_columns.set_to(ddl)) from exc
        return pins.splits_of(self.where, files, self._table, self._options, bool(self._quarantines))

    def take(self, splits: Sequence[Split], columns: Columns) -> None:
        """Adopt a pin; splits of other tables are ignored."""
        own = [split for split in splits if split.table == self._table.name]
        self.files = {split.id: pins.pinned_file(split) for split in own}
        self._names = tuple(self.files)
        self._rows = {split.id: split.rows for split in own if split.rows is not None}
        self._columns = columns

    def check(self) -> None:
        """Raises Fatal naming a file that is missing, changed or was added since the pin."""
        there = self._listing.files()
        if there is not self._compared:
            with of_table(self._table.name, Fatal):
                pins.compare(self._table.name, self.files, there)
            self._compared = there
        names = self._names
        for name in names[self._next : self._next + _WATCHED]:
            self._unchanged(name)
        self._next = 0 if self._next + _WATCHED >= len(names) else self._next + _WATCHED

    def closed(self, read: SnapshotRead) -> SnapshotRead:
        """The same read with an end: a row index in its file, or a byte in one of text; or the file's end."""
        if read.limit_rows is None:
            return read
        if self._options.format != "parquet":
            file = self.files[read.split]
            byte = lines.end_of(self.where, file, scan.index_of(read.after), read.limit_rows, self._options.format)
            return replace(read, up_to=None if byte >= file.size else byte, limit_rows=None)
        end, rows = scan.index_of(read.after) + read.limit_rows, self._rows.get(read.split)
        return replace(read, up_to=None if rows is not None and end >= rows else end, limit_rows=None)

    def row_count(self, read: SnapshotRead) -> int | None:
        """How many rows a closed read has; None for a text file, whose lines have not been counted."""
        rows = self._rows.get(read.split)
        if rows is None:
            return None
        return (rows if read.up_to is None else scan.index_of(read.up_to)) - scan.index_of(read.after)

    def scan(self, spark: SparkSession, reads: Sequence[SnapshotRead]) -> DataFrame:
        """The rows of these reads. Raises Fatal if a file that they read has changed since it was pinned."""
        for name in {read.split for read in reads}:
            self._unchanged(name)
        how = self._how()
        if self._options.format != "parquet":
            return text_frame(spark, self.where, self.files, reads, self._options.format, how)
        self._know_layouts({read.split for read in reads})
        foreign = [self.files[read.split].path for read in reads if not self._layouts[read.split].by_spark]
        why = "read columns from the names of folders" if self.folders else "read its types"
        old = [self.files[read.split].path for read in reads if not self._layouts[read.split].plain]
        if self.folders and old:
            raise Fatal(
                f"{old[0]}: its dates are those of Spark before 3.0, and it has columns in the names of folders",
                "write the files with a newer Spark; then " + START_OVER,
            )
        workers, mode = arrow_tasks.workers_know_us(spark), self._rebased_by(spark)
        if foreign and mode is not None:
            raise Fatal(
                f"{foreign[0]}: Spark's own reader cannot {why}, and only it follows '{mode}'",
                in_config(f"remove '{mode}' from [spark.conf]"),
            )
        if foreign and not workers:
            raise Fatal(f"{foreign[0]}: Spark's own reader cannot {why}", SAME_PACKAGE).of("")
        workers = workers and mode is None
        judged, left = list[SnapshotRead](), list[SnapshotRead]()  # row by row, where rows can be quarantined
        for read in reads:
            is_judged = workers and how.quarantine and self._layouts[read.split].plain
            (judged if is_judged else left).append(read)
        readers = choose(left, self._rows, self._layouts.__getitem__, workers)
        narrow = replace(how, columns={name: one for name, one in how.columns.items() if self._needs(name)})
        found = list[DataFrame]()
        if left or not judged:
            found.append(parquet_frame(spark, self.where, self.files, readers, narrow, self.met()))
        if judged:
            found.append(marked(parquet_rows.frame(spark, (part for _, part in self._parts(judged)), how), how))
        return balanced(lambda a, b: a.unionByName(b, allowMissingColumns=True), found)

    def met(self) -> tuple[Condition, ...]:
        """What rows that workers give to Spark meet; not where each row is judged, whatever becomes of it."""
        if self._options.format != "parquet" or self._quarantines:
            return ()
        return self._table.wanted.fitting(self._columns.values())

    def _needs(self, column: str) -> bool:
        return bool(self._quarantines) or self._table.wanted.needs(column)

    def _how(self) -> TextRows:
        """How workers read rows. Where a `where` follows, a NULL key is judged only after it."""
        csv, key, folders = self._options.csv, self._table.key, self._of_folders()
        names = tuple(name for name in self._columns if folders.get(name, True))
        way_on = Hint() if self._options.typed else _OR_TYPE
        way_on += Hint() if self._quarantines is None else OR_QUARANTINE
        return TextRows(
            csv,
            names,
            self._columns,
            PINNED,
            key,
            quarantine=bool(self._quarantines),
            way_on=way_on,
            not_null=() if self._table.filtered else key,
            domain=self._table.domain,
            folders=folders,
        )

    def _of_folders(self) -> Mapping[str, bool]:
        """The columns in the names of folders, and whether files have them, too: all of them, or none."""
        if not self.folders:
            return {}
        if self._in_files is None:
            found = pins.columns_in(self.where, next(iter(self.files.values())), self._table, self._options)
            self._in_files = frozenset(found)
        return {name: name in self._in_files for name in self.folders}

    def _parts(self, reads: Sequence[SnapshotRead]) -> Iterator[tuple[int, ParquetPart]]:
        """What workers read of Parquet files, each with the index of its read."""
        for index, read in enumerate(reads):
            file, groups = self.files[read.split], self._layouts[read.split].groups
            for part in parquet_rows.parts(self.where, file, groups, *scan.bounds(read, self._rows)):
                yield index, part

    def _rebased_by(self, spark: SparkSession) -> str | None:
        """The setting by which only Spark's reader changes this table's old dates; None if there is none."""
        holds_times = re.search('"(date|timestamp)', schema_text(self._columns))
        return row_groups.rebased_by(spark) if holds_times else None

    def batches(self, reads: Sequence[SnapshotRead], cores: int) -> ArrowTasks | None:
        """See `SnapshotSide.batches`. Parquet by row group, if pyarrow reads all of it as Spark does."""
        if self._options.format != "parquet":
            return None
        for name in {read.split for read in reads}:
            self._unchanged(name)
        self._know_layouts({read.split for read in reads})
        if not all(self._layouts[read.split].plain for read in reads):
            return None
        return parquet_rows.tasks(self._parts(reads), cores, self._how())

    def _unchanged(self, name: str) -> None:
        file = self.files[name]
        now = self._listing.again(file)
        with of_table(self._table.name, Fatal):
            if now is None:
                pins.compare(self._table.name, {name: file}, {})
            else:
                pins.refuse_changed(self._table.name, file, now)

    def _know_layouts(self, splits: Iterable[str]) -> None:
        unknown = [split for split in splits if split not in self._layouts]
        with ThreadPoolExecutor(THREADS) as pool:
            footers = pool.map(lambda split: footer(self.where, self.files[split]), unknown)
            for split, found in zip(unknown, footers, strict=True):
                plain = schemas.calendar_is_plain(found)
                by_spark = schemas.spark_reads(found) and not self.folders
                self._layouts[split] = Layout(group_rows(found), plain, by_spark)
