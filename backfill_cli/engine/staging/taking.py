"""Changes of a log that can only be consumed, for all tables at once: `contracts.TakingUpstream`.

The upstream leaves files of what it took; if each key occurs once and no expression touches a row, these are the
staged files. Otherwise Spark nets them. A row that lacks columns is completed from the key's earlier changes in
the same window, as far as they have them; for columns still missing, the sink keeps its present values.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import Taken, TakenTable, TakingUpstream, own
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.files import folder_made, write_net
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.model.plan import EpochPlan, SnapshotRead, StagedTable
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from backfill_cli.config.sections import Transform

FOLDER = "taken"


def take(
    upstream: TakingUpstream,
    spark: "SparkSession",
    plan: EpochPlan,
    reads: Sequence[tuple[SnapshotRead, int]],
    schemas: "Mapping[str, str]",
    folder: Path,
) -> Taken:
    """The plan's window, taken once its reads are written. reads: the plan's, closed."""
    assert plan.window is not None
    within = None
    if plan.within is not None:
        within = {**plan.within, **{(read.table, read.split): read.up_to for read, _ in reads}}
    folder_made(folder / FOLDER)
    return upstream.take(spark, plan.window, within, schemas, str(folder / FOLDER))


def over(rows: StagedTable, changes: StagedTable) -> StagedTable:
    """Combines rows with the changes of the window during which they were read; the changes prevail.

    Rows from before a truncate are gone; rows inserted after it are among the changes, as the window extends past
    every transaction that the read saw.
    """
    inserts = replace(rows, inserts=(), rows=0) if changes.truncated else rows
    return replace(changes, inserts=inserts.inserts, rows=inserts.rows)


def staged(
    spark: "SparkSession", table: str, taken: TakenTable, key: Sequence[str], shape: "Transform", folder: Path
) -> StagedTable:
    """One table's net changes, in the form that the sink takes."""
    if not taken.files:
        return StagedTable(truncated=taken.truncated)
    require_whole(table, taken.partial, shape)
    if taken.netted and shape.is_empty:
        files = tuple(replace(file, path=f"{FOLDER}/{file.path}") for file in taken.files)
        done = StagedTable(changes=files, changed=taken.changed, deleted=taken.deleted)
        return replace(done, truncated=taken.truncated, partial=taken.partial)
    frame = spark.read.parquet(*(str(folder / FOLDER / file.path) for file in taken.files))
    path = folder / table / "changes"
    if not taken.partial:
        return replace(write_net(transform.net(frame, key, shape), path, folder), truncated=taken.truncated)
    whole = frame if taken.netted else completed(frame, key)
    shaped, partial = transform.net_partial(whole, key, shape, taken.partial)
    return replace(write_net(shaped, path, folder), truncated=taken.truncated, partial=partial)


def require_whole(table: str, partial: Sequence[str], shape: "Transform") -> None:
    """No expression needs a value that was left out: the upstream can send less than when the job was created."""
    from backfill_cli.config.transforms import computing

    needs = computing(shape, partial)
    if needs:
        raise BadData(
            f"table {table!r}: changes leave out the value of {', '.join(partial)}, but it is needed by: "
            f"{'; '.join(needs)}",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL; then {START_OVER}",
        )


def completed(changes: "DataFrame", key: Sequence[str]) -> "DataFrame":
    """The last change of each key, with missing columns filled from earlier changes of the key as far as possible.

    changes: `(own.OP, own.SEQ, own.MS, own.UNSENT ARRAY<STRING>, row…)`; the result has the same columns.
    """
    from pyspark.sql import functions as F

    order = [own.SEQ, *(name for name in changes.columns if name != own.SEQ)]
    struct = F.struct(*(quoted(name) for name in order))
    keys = [quoted(c).alias(own.numbered(own.KEY, i)) for i, c in enumerate(key)]
    ordered = changes.groupBy(*keys).agg(F.array_sort(F.collect_list(struct)).alias(own.ALL))
    rest = F.slice(F.col(own.ALL), F.lit(2), F.greatest(F.size(own.ALL) - 1, F.lit(0)))
    names = [name for name in changes.columns if name not in (own.OP, own.SEQ, own.MS, own.UNSENT)]

    def merged(before: "Column", after: "Column") -> "Column":
        lacks = F.coalesce(after[own.UNSENT], F.array().cast("array<string>"))
        usable = before[own.OP] == "U"
        values = [
            F.when(usable & F.array_contains(lacks, name), before[name]).otherwise(after[name]).alias(name)
            for name in names
        ]
        still = F.array_intersect(lacks, F.coalesce(before[own.UNSENT], F.array().cast("array<string>")))
        unsent = F.when(usable, still).otherwise(lacks).alias(own.UNSENT)
        fixed = {name: after[name].alias(name) for name in (own.SEQ, own.OP, own.MS)}
        by_name = dict(zip(names, values, strict=True)) | fixed | {own.UNSENT: unsent}
        return F.struct(*(by_name[name] for name in order))

    last = F.aggregate(rest, F.element_at(own.ALL, 1), merged).alias(own.LAST)
    return ordered.select(last).select(*(F.col(own.LAST)[name].alias(name) for name in changes.columns))
