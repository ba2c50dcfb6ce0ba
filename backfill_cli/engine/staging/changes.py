"""The changes of a window become files: net by key and in the sink's form, one table at a time.

A log is read in one call for all tables. Where it leaves files in which each key occurs once, and no expression
touches a row, these are the staged files; otherwise Spark nets and writes. For columns that a net row lacks, the
sink keeps its present values.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backfill_cli.cdc.net import net
from backfill_cli.config.sections import Table, Transform
from backfill_cli.contracts import ArrowTasks, ChangeFrame, LogBatch, Source, TakenTable, own
from backfill_cli.engine.staging import quarantine, transform, workers
from backfill_cli.engine.staging.files import observed, write_changes
from backfill_cli.engine.staging.quarantine import side_name
from backfill_cli.engine.staging.values import null_keys_of_log, refuse_null_keys_of_log
from backfill_cli.engine.staging.workers import LogTasks, Net
from backfill_cli.errors import START_OVER, BadData, sql
from backfill_cli.model.plan import EpochPlan, SnapshotRead, StagedTable
from backfill_cli.model.position import Cursor
from backfill_cli.model.split import SplitKey
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.row_counts import place

FOLDER = "taken"

Lacking = dict[str, tuple[str, ...]]
"""By table: columns that rows were seen to lack."""


def reached(plan: EpochPlan, reads: Sequence[tuple[SnapshotRead, int]]) -> Mapping[SplitKey, Cursor | None] | None:
    """`EpochPlan.within` once the plan's reads are written. reads: these, closed."""
    if plan.within is None:
        return None
    return {**plan.within, **{(read.table, read.split): read.up_to for read, _ in reads}}


def over(rows: StagedTable, changes: StagedTable) -> StagedTable:
    """Combines rows with the changes of the window during which they were read; the changes prevail.

    Rows from before a truncate are gone; rows inserted after it are among the changes, as the window extends past
    every transaction that the read saw.
    """
    inserts = replace(rows, inserts=(), rows=0) if changes.truncated else rows
    return replace(changes, inserts=inserts.inserts, rows=inserts.rows)


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """One table's changes. changes: how many there were; images: rows that only hold the state before an update.

    side: the side table's rows, if there are any.
    """

    table: StagedTable
    changes: int
    images: int = 0
    side: Mapping[str, StagedTable] = field(default_factory=dict)


def netted(
    spark: SparkSession, upstream: Source, tables: Sequence[Table], batch: LogBatch, folder: Path
) -> Mapping[str, TakenTable | ChangeFrame | Net]:
    """What a log gave of these tables, with all that workers produce netted and written by them, in one job.

    Changes of which some lack columns, or truncate the table, are left to Spark.
    """
    found: dict[str, TakenTable | ChangeFrame | Net] = {}
    tasks: dict[str, LogTasks] = {}
    for table in tables:
        one = batch.tables.get(table.name, TakenTable())
        if not isinstance(one, ArrowTasks):
            found[table.name] = one
        elif not workers.nets(one, table.key):
            found[table.name] = ChangeFrame(one.frame(spark))
        else:
            path, apart = folder / FOLDER / table.name / "net", folder / side_name(table.name) / "changes"
            tasks[table.name] = LogTasks(one, tuple(table.key), path, apart)
    done = workers.net(spark, tasks, folder / FOLDER, folder, place())
    for table in tables:
        if table.name in done:
            nulls = {f"null_{at}": count for at, count in enumerate(done[table.name].nulls)}
            refuse_null_keys_of_log(upstream, table.name, table.key, nulls)
    again = {
        name: ChangeFrame(tasks[name].tasks.frame(spark), partial=one.lacking)
        for name, one in done.items()
        if one.lacking or one.truncates
    }
    return {**found, **done, **again}


def staged(
    spark: SparkSession,
    upstream: Source,
    table: Table,
    found: TakenTable | ChangeFrame | Net,
    shape: Transform,
    folder: Path,
    lacking: Lacking | None = None,
) -> StagedChanges:
    """One table's net changes, in the form that the sink takes, in the attempt's folder.

    lacking: by table, the columns that rows of a frame were seen to lack so far; becomes larger.
    """
    if isinstance(found, Net):
        apart = {side_name(table.name): found.apart} if found.apart.rows else {}
        return replace(staged(spark, upstream, table, found.table, shape, folder), side=apart)
    require_whole(table.name, found.partial, shape)
    if isinstance(found, TakenTable):
        if not found.files:
            return StagedChanges(StagedTable(truncated=found.truncated), found.changes)
        if found.netted and shape.is_empty:
            files = tuple(replace(file, path=f"{FOLDER}/{file.path}") for file in found.files)
            done = StagedTable(changes=files, changed=found.changed, deleted=found.deleted)
            return StagedChanges(replace(done, truncated=found.truncated, partial=found.partial), found.changes)
        frame = spark.read.parquet(*(str(folder / FOLDER / file.path) for file in found.files))
        found = ChangeFrame(frame, found.changes, found.netted, found.truncated, found.partial)
    frame, check = quarantine.judged(found.frame, upstream, table.name)
    frame, side = quarantine.readable(spark, frame, table.name, folder)
    seen = None
    if found.changes is None:
        frame, seen = observed(frame, {**null_keys_of_log(table.key), "images": transform.images(frame)})
    if found.netted:
        done = _written(frame.drop(own.SEQ, own.MS), table.name, found.partial, shape, folder)
    else:
        done = _netted(table, frame, found.partial, shape, folder, {} if lacking is None else lacking)
    check()
    done = replace(done, truncated=done.truncated or found.truncated)
    if seen is None:
        return StagedChanges(done, found.changes or 0, side=side)
    counted = seen()
    refuse_null_keys_of_log(upstream, table.name, table.key, counted)
    return StagedChanges(done, counted["rows"] - counted["images"], counted["images"], side)


def _written(whole: DataFrame, table: str, lacking: Sequence[str], shape: Transform, folder: Path) -> StagedTable:
    """Net changes as files. lacking: the columns that rows can lack."""
    from backfill_cli.config.transforms import kept

    names = kept(shape, lacking)
    done, _ = write_changes(transform.shaped(whole, shape, names), folder / table / "changes", folder)
    return replace(done, partial=tuple(names.values()))


def _netted(
    table: Table, frame: DataFrame, names: Sequence[str], shape: Transform, folder: Path, known: Lacking
) -> StagedTable:
    """The net changes of a frame as files. names: columns that rows are known to lack. known: see `staged`.

    Which columns rows lack, and whether the table was truncated, is seen only once they are read: then they are
    read again. For columns, that is once in a process: netting for columns that none lacks is expensive.
    """
    names = tuple(names) or known.get(table.name, ())
    rows, seen = observed(
        frame, {"truncates": F.when(F.col(own.OP) == "T", 1), "more": _lacks_other(frame, names)}
    )
    done = _written(net(of_rows(rows), table.key, names), table.name, names, shape, folder)
    told = seen()
    if not told["truncates"] and not told["more"]:
        return done
    more, last = seen_in(frame)
    names = tuple(dict.fromkeys((*names, *more)))
    if names:
        known[table.name] = names
    require_whole(table.name, names, shape)
    shutil.rmtree(folder / table.name / "changes")
    kept = frame if last is None else frame.where(F.col(own.SEQ) > last)
    done = _written(net(of_rows(kept), table.key, names), table.name, names, shape, folder)
    return replace(done, truncated=last is not None)


def _lacks_other(frame: DataFrame, names: Sequence[str]) -> Column:
    """For counting: not NULL for a row that lacks a column which is not among these."""
    if own.UNSENT not in frame.columns:
        return F.lit(None)
    known = F.array(*map(F.lit, names)).cast("array<string>")
    return F.when(F.size(F.array_except(own.UNSENT, known)) > 0, 1)


def of_rows(changes: DataFrame) -> DataFrame:
    """The changes without truncates, which are of no row."""
    return changes.where(F.col(own.OP) != "T")


def seen_in(changes: DataFrame) -> tuple[tuple[str, ...], Column | None]:
    """(the columns that some rows lack, where the last truncate is); the frame is computed for it."""
    lacking = own.UNSENT if own.UNSENT in changes.columns else F.lit(None).cast("array<string>")
    names = F.array_sort(F.array_distinct(F.flatten(F.collect_set(lacking))))
    last = F.max(F.when(F.col(own.OP) == "T", F.col(own.SEQ)))
    # as JSON, since Arrow has no NULL for a struct with parts that are never NULL
    told = F.to_json(F.struct(last.alias("last")))
    (found,) = changes.agg(names.alias("names"), told.alias("told")).toArrow().to_pylist()
    at = json.loads(found["told"]).get("last")
    return tuple(found["names"]), None if at is None else _literal(at, changes.schema[own.SEQ].dataType)


def _literal(value: Any, kind: Any) -> Column:
    if not isinstance(value, dict):
        return F.lit(value).cast(kind)
    return F.struct(*(_literal(value[one.name], one.dataType).alias(one.name) for one in kind.fields))


def require_whole(table: str, partial: Sequence[str], shape: Transform) -> None:
    """No expression needs a value that was left out: the upstream can send less than when the job was created."""
    from backfill_cli.config.transforms import computing

    needs = computing(shape, partial) if partial else ()
    if needs:
        raise BadData(
            f"table {table!r}: changes leave out the value of {', '.join(partial)}, but it is needed by: "
            f"{'; '.join(needs)}",
            sql(f"ALTER TABLE {table} REPLICA IDENTITY FULL") + "; then " + START_OVER,
        )
