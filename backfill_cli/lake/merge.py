"""Staged rows as Spark frames, the SQL that applies net changes to a lake table, and checks before a commit.

That no key of a table is duplicated is proven by counts in Spark; or from the key columns of plain files, read by
Spark's Python workers: one task compares the files whose key ranges overlap. There is no shuffle, and for a table
sorted by its key the cost is little more than reading the column.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_cli.contracts import EpochCommit, Piece, SinkTable, own
from backfill_cli.contracts.refusals import duplicate_keys, no_row_to_fill
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.formats import row_groups
from backfill_cli.formats.compute import pc
from backfill_cli.formats.frames import reader
from backfill_cli.lake.key_ranges import point_sql
from backfill_cli.lake.plain_files import COMPARED, PlainFiles, bounds_of
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.model.schema import Columns, columns_of, field, names_of
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.names import backticked, literal, quoted

NAMED_KEYS = 5
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
INTERPRETED_ROWS = 20_000
INTERPRETED_MET = 300_000
"""Interpreted, a row that a MERGE reads and copies costs 3.4 µs of CPU more; the generated code once 1.4 s."""
FILE_BYTES = 32 * 2**20
"""Staged bytes per task: an epoch of a few rows becomes one file, a large one is written by all cores."""
MOST_FILES = 2_000
"""The footer of every file is read in this process: 1 ms each."""
MOST_ROWS = 20_000_000
"""Rows whose keys one task holds, 8 bytes each of a BIGINT."""
INEXACT = ("float", "double")
"""Types whose equal values can differ in their bits."""
LONGEST_NAME = 255
"""Bytes of a folder's name on this machine's disks."""
Bounds = tuple[int, int]
"""Points, inclusive: see key_ranges."""


@contextmanager
def planned_for(session: SparkSession, staged: StagedTable, met: Callable[[], int | None]) -> Iterator[None]:
    """A MERGE of few rows with few rows is interpreted: code compiled for one MERGE is not used by another.

    Its bounds differ each time: of the 4.4 s of CPU of a MERGE of 1,000 rows, 1.4 s were spent on generated code.
    session: one that the sink has for itself. met: how many rows of the table it reads at most; None if unknown.
    """
    few = staged.rows + staged.changed + staged.deleted <= INTERPRETED_ROWS
    few = few and (rows := met()) is not None and rows <= INTERPRETED_MET
    for name, value in INTERPRETED.items() if few else ():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in INTERPRETED if few else ():
            session.conf.unset(name)


@contextmanager
def viewed(session: SparkSession, rows: DataFrame) -> Iterator[str]:
    """The name of these rows in SQL, within the block."""
    view = f"{own.SOURCE}_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        session.catalog.dropTempView(view)


def merge_into(
    target: str,
    rows: DataFrame,
    files: Sequence[StagedFile],
    commit: EpochCommit,
    table: SinkTable,
    held: Callable[[], DataFrame],
    met: Callable[[Bounds | None], int | None],
    marked: AbstractContextManager[None],
) -> None:
    """Apply `(own.OP, [own.UNSENT,] columns…)`, net by key, by one MERGE into `target`, a table in SQL.

    files: where the rows are staged. held: the table's rows. met: how many of them a MERGE within bounds reads at
    most, see `planned_for`. marked: the MERGE is the only commit in it. Raises BadData as `refuse_lost` does.
    """
    session, staged = rows.sparkSession, staged_of(commit, table)
    if own.UNSENT in rows.columns and not commit.may_lack(table):
        refuse_lost(table, rows, held())
    bounds = key_bounds(commit, table, files)
    few = planned_for(session, staged, lambda: met(bounds))
    with viewed(session, rows) as source, marked, few:
        session.sql(merge_sql(target, source, table, staged.partial, bounds)).toArrow()


def merge_sql(
    target: str, source: str, table: SinkTable, partial: Sequence[str], bounds: Bounds | None = None
) -> str:
    """MERGE of `source`, a view of `(own.OP, [own.UNSENT,] columns…)` net by key, into `target`; both SQL names.

    partial: columns that some rows leave unchanged in the table. bounds: see `key_bounds`. A row that omits
    columns and has no row to change is not inserted: see `refuse_lost`.
    """
    names = names_of(table.schema)
    same = "<=>" if table.derived else "="
    matches = [f"t.{backticked(name)} {same} s.{backticked(name)}" for name in table.key]
    if bounds is not None:
        first, kind = f"t.{backticked(table.key[0])}", columns_of(table.schema)[table.key[0]]["type"]
        within = f"{first} >= {point_sql(bounds[0], kind)} AND {first} <= {point_sql(bounds[1], kind)}"
        matches.append(f"({within} OR {first} IS NULL)" if table.derived else within)

    def value(name: str) -> str:
        if name not in partial:
            return f"s.{backticked(name)}"
        kept = f"coalesce(array_contains(s.{own.UNSENT}, {literal(name)}), false)"
        return f"CASE WHEN {kept} THEN t.{backticked(name)} ELSE s.{backticked(name)} END"

    updated = ", ".join(f"t.{backticked(name)} = {value(name)}" for name in names)
    columns = ", ".join(backticked(name) for name in names)
    inserted = ", ".join(f"s.{backticked(name)}" for name in names)
    whole = f"s.{own.OP} = 'U'" + (f" AND coalesce(size(s.{own.UNSENT}), 0) <= 0" if partial else "")
    return (
        f"MERGE INTO {target} AS t USING {source} AS s ON {' AND '.join(matches)} "
        f"WHEN MATCHED AND s.{own.OP} = 'D' THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {updated} "
        f"WHEN NOT MATCHED AND {whole} THEN INSERT ({columns}) VALUES ({inserted})"
    )


def key_bounds(commit: EpochCommit, table: SinkTable, files: Sequence[StagedFile]) -> Bounds | None:
    """The least and the greatest value of the first key column in staged files, from their footers.

    With it, a MERGE reads only files within them. None if the footers lack them, or the type is not compared.
    """
    key, paths = table.key[0], (f"{commit.folder}/{file.path}" for file in files)
    return bounds_of(paths, key, columns_of(table.schema)[key]["type"])


def refuse_lost(table: SinkTable, changes: DataFrame, *held: DataFrame) -> None:
    """Raises BadData naming keys of changes that leave columns unchanged, if their rows are in none of `held`."""
    named = [F.concat_ws(", ", own.UNSENT), *(quoted(name).cast("string") for name in table.place or ())]
    lost = changes.where((F.col(own.OP) == "U") & (F.size(own.UNSENT) > 0)).select(
        *(quoted(name) for name in table.key), F.array(*named).alias(own.PLACE)
    )
    for rows in held:
        lost = lost.join(rows.select(*(quoted(name) for name in table.key)), list(table.key), "left_anti")
    told = F.concat(F.array(shown_key(table)), own.PLACE).alias("told")
    found = lost.select(told).limit(NAMED_KEYS).toArrow().column("told").to_pylist()
    if found:
        raise no_row_to_fill(table, sorted(found))


def refuse_partitions(
    rows: DataFrame, table: SinkTable, place: str, tests: Mapping[str, Column], what: str
) -> None:
    """Raises BadData naming up to five rows with values that the table's partitions cannot hold.

    rows: those that are about to be written; those that are about to be deleted do not count. place: the table,
    for the message. tests: by column, under which condition its value cannot be held; never NULL for one that can.
    what: which values that are, for the hint.
    """
    if not tests:
        return
    written = rows.where(F.col(own.OP) == "U") if own.OP in rows.columns else rows
    first = F.coalesce(*(F.when(test, F.lit(name)) for name, test in tests.items()))
    lost = written.select(shown_key(table).alias("key"), first.alias("part")).where("part IS NOT NULL")
    found = lost.limit(NAMED_KEYS).toArrow().to_pylist()
    if found:
        name = found[0]["part"]
        keys = sorted(f"({one['key']})" for one in found if one["part"] == name)
        raise BadData(
            f"table {table.name!r}: {place} is partitioned by {name!r}, and cannot hold its value in the rows "
            f"with the key ({', '.join(table.key)}): {'; '.join(keys)}",
            f"a partition cannot hold {what}: "
            + START_OVER
            + f", into a table that is not partitioned by {name!r}, or with other values for these in the "
            "transform's select, or without these rows by its where",
        )


def shown_key(table: SinkTable) -> Column:
    """A row's key as text for messages."""
    fields = columns_of(table.schema)
    shown = [
        (F.hex(quoted(name)) if fields[name]["type"] == "binary" else quoted(name).cast("string"))
        for name in table.key
    ]
    return F.concat_ws(", ", *(F.coalesce(one, F.lit("NULL")) for one in shown))


def inserts(spark: SparkSession, commit: EpochCommit, table: SinkTable) -> DataFrame | None:
    """`(columns…)` of the epoch's snapshot rows, in the order of the table's schema; None if there are none."""
    staged = staged_of(commit, table)
    if not staged.inserts or not staged.rows:
        return None
    return _frame(spark, commit, staged.inserts, columns_of(table.schema))


def changes(spark: SparkSession, commit: EpochCommit, table: SinkTable) -> DataFrame | None:
    """`(own.OP 'U'|'D', [own.UNSENT,] columns…)`, net by key, of the epoch's changes; None if there are none.

    `own.UNSENT` exists if some row leaves columns unchanged in the table (`StagedTable.partial`).
    """
    staged = staged_of(commit, table)
    if not staged.changes or not staged.changed + staged.deleted:
        return None
    columns: Columns = {own.OP: field(own.OP, "string")}
    if staged.partial:
        columns[own.UNSENT] = field(own.UNSENT, {"type": "array", "elementType": "string", "containsNull": True})
    return _frame(spark, commit, staged.changes, {**columns, **columns_of(table.schema)})


def size_bytes(files: Sequence[StagedFile]) -> int:
    return sum(file.size_bytes for file in files)


def staged_of(commit: EpochCommit, table: SinkTable) -> StagedTable:
    """What the epoch has for the table."""
    return commit.staged.tables.get(table.name) or StagedTable()


def _frame(spark: SparkSession, commit: EpochCommit, files: Sequence[StagedFile], columns: Columns) -> DataFrame:
    paths = [f"{commit.folder.rstrip('/')}/{file.path}" for file in files]
    frame = reader(spark, columns).parquet(*paths).select(*(quoted(name) for name in columns))
    return frame.coalesce(max(1, -(-size_bytes(files) // FILE_BYTES)))


def refuse_duplicates(table: SinkTable, rows: DataFrame, where: str = "the snapshot") -> None:
    """Raises BadData naming up to five duplicate keys in `rows`, all rows of the table. where: for the message."""
    if _proven_unique(table, rows):
        return
    grouped = rows.groupBy(*(quoted(name) for name in table.key)).agg(F.count(F.lit(1)).alias(own.COUNT))
    twice = grouped.where(F.col(own.COUNT) > 1).select(shown_key(table).alias("key"), own.COUNT)
    found = twice.limit(NAMED_KEYS).toArrow().to_pylist()
    if found:
        raise duplicate_keys(table, sorted((one["key"], one[own.COUNT]) for one in found), where)


def _proven_unique(table: SinkTable, rows: DataFrame) -> bool:
    """Whether each 64 adjacent keys have as many bits as rows: 5 million dense keys take 0.8 s, grouping them 5 s.

    Keys that are not dense cost as much as grouping. False if no column of the key is a whole number, if a key is
    duplicated, or if one is NULL.
    """
    fields = columns_of(table.schema)
    whole = next((name for name in reversed(table.key) if fields[name]["type"] in COMPARED), None)
    if whole is None:
        return False
    of = backticked(whole)
    number = f"CAST({f'unix_date({of})' if fields[whole]['type'] == 'date' else of} AS BIGINT)"
    rest = [quoted(name) for name in table.key if name != whole]
    bits = F.expr(f"bit_or(shiftleft(1L, CAST({number} & 63L AS INT)))").alias(own.BITS)
    counted = F.count(F.lit(1)).alias(own.COUNT)
    grouped = rows.groupBy(*rest, F.expr(f"shiftright({number}, 6)")).agg(bits, counted)
    twice = grouped.where(f"NOT (bit_count({own.BITS}) <=> {own.COUNT})")
    return not twice.select(own.COUNT).limit(1).toArrow().num_rows


def unique_in_files(spark: SparkSession, files: PlainFiles | None, key: Sequence[str], columns: Columns) -> bool:
    """Whether no key occurs twice in these files. False also if they do not tell: Spark has to compare then."""
    kinds = [columns[name]["type"] for name in key]
    if files is None or any(not isinstance(kind, str) or kind in INEXACT for kind in kinds):
        return False
    if len(files.paths()) > MOST_FILES or not arrow_tasks.workers_know_us(spark):
        return False
    if row_groups.rebased_by(spark) is not None:
        return False
    groups = files.overlapping()
    if groups is None or any(rows > MOST_ROWS for _, rows in groups):
        return False
    pieces = [(Piece(0, paths), rows) for paths, rows in groups]
    parts = arrow_tasks.packed(pieces, arrow_tasks.cores(spark))
    if not parts:
        return True
    told = arrow_tasks.frame(spark, partial(_counted, tuple(key)), parts, "unique BOOLEAN").toArrow()
    return all(told["unique"].to_pylist())


def _counted(key: Sequence[str], part: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    try:
        unique = all(_unique(piece.what, key) for piece in part)
    except (OSError, pa.ArrowException):
        unique = False  # the format's own reader says what is wrong with the file
    yield pa.RecordBatch.from_pydict({"unique": [unique]})


def _unique(paths: Sequence[str], key: Sequence[str]) -> bool:
    read = [pq.read_table(path, columns=list(key), memory_map=True, partitioning=None) for path in paths]
    keys = pa.concat_tables(read, promote_options="permissive")
    if len(key) == 1 and _rises(keys.column(0)):
        return True
    return bool(keys.num_rows == keys.group_by(list(key), use_threads=False).aggregate([]).num_rows)


def _rises(column: Any) -> bool:
    """Whether each value is greater than the one before it."""
    flat = column.combine_chunks()
    return len(flat) < 2 or bool(pc.all(pc.less(flat.slice(0, len(flat) - 1), flat.slice(1))).as_py())
