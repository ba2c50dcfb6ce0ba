"""Turns spool entries into one epoch's staged rows: the net change of each key over all of them.

Changes are ordered by entry, then by place within the entry. If an entry truncates a table, the table's earlier
changes are meaningless.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import SpoolEntry, TakenTable, own
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.staging import taking, transform
from backfill_cli.engine.staging.files import older_names, write_net
from backfill_cli.formats.frames import metadata
from backfill_cli.model.balanced import balanced
from backfill_cli.model.plan import StagedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config.sections import Transform


def staged(
    spark: "SparkSession",
    spool: Spool,
    entries: Sequence[SpoolEntry],
    table: str,
    key: Sequence[str],
    shape: "Transform",
    folder: Path,
) -> StagedTable:
    """One table's net changes of some entries, in the sink's form, in files of the attempt's `folder`."""
    held = [(entry, entry.tables[table]) for entry in entries if table in entry.tables]
    last = max((i for i, (_, one) in enumerate(held) if one.truncated), default=None)
    counted = held if last is None else held[last:]
    truncated, path = last is not None, folder / table / "changes"
    with_files = [(entry, one) for entry, one in counted if one.files]
    if not with_files:
        return StagedTable(truncated=truncated)
    partial = tuple(dict.fromkeys(name for _, one in with_files for name in one.partial))
    changes = _frame(spark, spool, with_files)
    if not partial:
        return replace(write_net(transform.net(changes, key, shape), path, folder), truncated=truncated)
    taking.require_whole(table, partial, shape)
    shaped, left = transform.net_partial(taking.completed(changes, key), key, shape, partial)
    return replace(write_net(shaped, path, folder), truncated=truncated, partial=left)


def _frame(spark: "SparkSession", spool: Spool, held: Sequence[tuple[SpoolEntry, TakenTable]]) -> "DataFrame":
    """All changes, with `own.SEQ` ordering them across entries; with `own.UNSENT` if some entry has it."""
    from pyspark.sql import functions as F

    def read(paths: Sequence[Path]) -> "DataFrame":
        frame, older = spark.read.parquet(*map(str, paths)), older_names(paths[0])
        number = F.regexp_extract(metadata(frame, "file_path"), r"^.*/(\d{12})-[0-9a-f]{12}/", 1).cast("long")
        place = next((name for name, now in older.items() if now == own.SEQ), own.SEQ)
        told = frame.withColumn(place, F.struct(number.alias("entry"), F.col(place).alias("place")))
        return told.withColumnsRenamed(older)

    alike: dict[tuple[bool, bool], list[Path]] = {}
    for entry, one in held:
        paths = [spool.place(entry.name) / file.path for file in one.files]
        alike.setdefault((not one.partial, bool(older_names(paths[0]))), []).extend(paths)
    frames = [read(paths) for _, paths in sorted(alike.items())]
    return balanced(lambda some, more: some.unionByName(more, allowMissingColumns=True), frames)
