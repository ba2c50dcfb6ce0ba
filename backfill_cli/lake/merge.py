"""Staged rows as Spark frames, the SQL that applies net changes to a lake table, and checks before a commit."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import no_row_to_fill
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.formats.frames import reader
from backfill_cli.formats.schemas import leaf_of
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.model.schema import Columns, columns_of, field, names_of
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.names import backticked, quoted

NAMED_KEYS = 5
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
INTERPRETED_ROWS = 20_000
INTERPRETED_MET = 300_000
"""Interpreted, a row that a MERGE reads and copies costs 3.4 µs of CPU more; the generated code once 1.4 s."""
FILE_BYTES = 32 * 2**20
"""Staged bytes per task: an epoch of a few rows becomes one file, a large one is written by all cores."""
PRUNED_BY = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "date": "DATE"}
"""Types of a first key column whose bounds are written into a MERGE, so that it reads only files within them."""
LONGEST_NAME = 255
"""Bytes of a folder's name on this machine's disks."""
Bounds = tuple[int, int] | tuple[date, date]


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


def merge_sql(
    target: str, source: str, table: SinkTable, partial: Sequence[str], bounds: Bounds | None = None
) -> str:
    """MERGE of `source`, a view of `(own.OP, [own.UNSENT,] columns…)` net by key, into `target`; both SQL names.

    partial: columns that some rows leave unchanged in the table. bounds: see `key_bounds`. A row that omits
    columns and has no row to change is not inserted: see `refuse_lost`.
    """
    names = names_of(table.schema)
    matches = [f"t.{backticked(name)} = s.{backticked(name)}" for name in table.key]
    if bounds is not None:
        first, kind = f"t.{backticked(table.key[0])}", PRUNED_BY[columns_of(table.schema)[table.key[0]]["type"]]
        matches += [f"{first} >= CAST('{bounds[0]}' AS {kind})", f"{first} <= CAST('{bounds[1]}' AS {kind})"]

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

    None if the footers lack them, or the type is not in PRUNED_BY.
    """
    kind = columns_of(table.schema)[table.key[0]]["type"]
    if not isinstance(kind, str) or kind not in PRUNED_BY:
        return None
    low, high = [], []
    for file in files:
        footer = pq.read_metadata(Path(commit.folder, file.path))
        at = leaf_of(footer.schema.to_arrow_schema(), table.key[0])
        if at is None:
            return None
        for group in range(footer.num_row_groups):
            known = footer.row_group(group).column(at).statistics
            if known is None or not known.has_min_max:
                return None
            try:
                low.append(known.min)
                high.append(known.max)
            except (OverflowError, ValueError):  # a date that Python does not have
                return None
    return (min(low), max(high)) if low else None


def refuse_lost(table: SinkTable, changes: DataFrame, *held: DataFrame) -> None:
    """Raises BadData naming keys of changes that leave columns unchanged, if their rows are in none of `held`."""
    lost = changes.where((F.col(own.OP) == "U") & (F.size(own.UNSENT) > 0)).select(
        *(quoted(name) for name in table.key)
    )
    for rows in held:
        lost = lost.join(rows.select(*(quoted(name) for name in table.key)), list(table.key), "left_anti")
    found = lost.select(shown_key(table).alias("key")).limit(NAMED_KEYS).toArrow().column("key").to_pylist()
    if found:
        raise no_row_to_fill(table, sorted(found))


def refuse_partitions(
    frames: Iterable[DataFrame], table: SinkTable, place: str, tests: Mapping[str, Column], what: str
) -> None:
    """Raises BadData naming up to five rows with values that the table's partitions cannot hold.

    frames: rows that are about to be written; those that are about to be deleted do not count. place: the table,
    for the message. tests: by column, under which condition its value cannot be held; never NULL for one that can.
    what: which values that are, for the hint.
    """
    for frame in frames if tests else ():
        _refuse(frame, table, place, tests, what)


def _refuse(frame: DataFrame, table: SinkTable, place: str, tests: Mapping[str, Column], what: str) -> None:
    written = frame.where(F.col(own.OP) == "U") if own.OP in frame.columns else frame
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


def literal(text: str) -> str:
    """A string as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


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
    staged = _staged(commit, table)
    if not staged.inserts or not staged.rows:
        return None
    return _frame(spark, commit, staged.inserts, columns_of(table.schema))


def changes(spark: SparkSession, commit: EpochCommit, table: SinkTable) -> DataFrame | None:
    """`(own.OP 'U'|'D', [own.UNSENT,] columns…)`, net by key, of the epoch's changes; None if there are none.

    `own.UNSENT` exists if some row leaves columns unchanged in the table (`StagedTable.partial`).
    """
    staged = _staged(commit, table)
    if not staged.changes or not staged.changed + staged.deleted:
        return None
    columns: Columns = {own.OP: field(own.OP, "string")}
    if staged.partial:
        columns[own.UNSENT] = field(own.UNSENT, {"type": "array", "elementType": "string", "containsNull": True})
    return _frame(spark, commit, staged.changes, {**columns, **columns_of(table.schema)})


def size_bytes(files: Sequence[StagedFile]) -> int:
    return sum(file.size_bytes for file in files)


def _staged(commit: EpochCommit, table: SinkTable) -> StagedTable:
    return commit.staged.tables.get(table.name) or StagedTable()


def _frame(spark: SparkSession, commit: EpochCommit, files: Sequence[StagedFile], columns: Columns) -> DataFrame:
    paths = [f"{commit.folder.rstrip('/')}/{file.path}" for file in files]
    frame = reader(spark, columns).parquet(*paths).select(*(quoted(name) for name in columns))
    return frame.coalesce(max(1, -(-size_bytes(files) // FILE_BYTES)))
