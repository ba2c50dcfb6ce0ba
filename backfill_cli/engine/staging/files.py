"""Staged Parquet files: written by Spark (or its workers, workers.py), durable, counted by their footers.

The rows counted while writing must equal the rows in the footers of the files that are visible here: otherwise
executors that write to a place that this process does not see would yield an epoch without rows, which commits.
"""

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill_cli.config import JobConfig
from backfill_cli.contracts import own
from backfill_cli.engine.staging.values import storable
from backfill_cli.errors import CORRECT_VALUE, BadData, Transient, UsageError, in_config
from backfill_cli.formats.schemas import leaf_of
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.model.units import spell_count
from backfill_cli.spark.api import Column, DataFrame, F, Session, SparkSession

FAST = {"compression": "lz4_raw", "parquet.writer.version": "PARQUET_2_0"}
"""A fifth less CPU for writing and loading than Spark's defaults: version 2 encodes differences."""


@dataclass(frozen=True, slots=True)
class Footers:
    """What the footers of some files say: the row count, and the number of NULLs in each requested column."""

    rows: int
    nulls: dict[str, int]


TRIED_PARTS = 16
OLDER = {"_op": own.OP, "_seq": own.SEQ, "_ms": own.MS, "_unsent": own.UNSENT}
"""By what the versions before the prefix called them: what our columns of a file of changes are called now."""
EARLIEST_US = -9_223_372_022_400_000_000
"""290309-12-22 (BC): DuckDB stores earlier timestamps but cannot show them. The second-lowest is -infinity."""


def write(
    frame: DataFrame, path: Path, by: str | None = None, counts: Mapping[str, Column] | None = None
) -> dict[str, int]:
    """The frame's rows are Parquet files in the new folder `path`; `by`: in a subfolder for each of its values.

    Returns what was counted during the write: `rows`, and `counts` (name -> number of non-NULL values).
    Raises Transient when the folder cannot be created; a failure of Spark passes through, including one for a
    value that no sink takes (see values.py).
    """
    folder_made(path.parent)
    rows, seen = observed(storable(frame), counts or {})
    writer = rows.write.options(**FAST)
    (writer if by is None else writer.partitionBy(by)).parquet(str(path))
    return seen()


def observed(frame: DataFrame, counts: Mapping[str, Column]) -> tuple[DataFrame, Callable[[], dict[str, int]]]:
    """The same rows, and a function that returns, once they are written, what was counted.

    That is `rows`, and `counts` (name -> number of non-NULL values).
    """
    from pyspark.sql import Observation

    seen, counted = Observation(), {"rows": F.lit(1), **counts}

    def found() -> dict[str, int]:
        told = seen.get  # every call fetches all of them from the driver
        return {name: int(told.get(name) or 0) for name in counted}

    return frame.observe(seen, *(F.count(column).alias(name) for name, column in counted.items())), found


def folder_made(path: Path) -> None:
    """The folder exists, accessible only to its owner. Raises Transient when it cannot be created."""
    with _on_disk(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        said = f"staging folder {path}: {exc.strerror or exc}"
        raise Transient(said, in_config("check job.staging and the disk")) from exc


@contextmanager
def nothing_left(path: Path) -> Iterator[None]:
    """Folders on the way to `path` that did not exist before are gone afterwards, if they are empty."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    finally:
        for folder in missing:
            with suppress(OSError):  # never created, or another process uses it meanwhile
                folder.rmdir()


def write_changes(
    changes: DataFrame, path: Path, folder: Path, counts: Mapping[str, Column] | None = None
) -> tuple[StagedTable, dict[str, int]]:
    """Changes, `(own.OP 'U'|'D', row…)`, are files in `path`; also returns the counts."""
    ops = {op: F.when(F.col(own.OP) == op, 1) for op in ("U", "D")}
    written = write(changes, path, counts={**ops, **(counts or {})})
    files = listed(path, folder)
    require_all(path, written["rows"], footers(folder, files, ()))
    return StagedTable(changes=files, changed=written["U"], deleted=written["D"]), written


def require_all(path: Path, written: int, *found: Footers, option: str = "job.staging") -> None:
    """The visible files hold the rows that were written. Raises Transient, as a shared folder may just be slow.

    option: where the folder is set.
    """
    rows = sum(one.rows for one in found)
    if rows != written:
        raise Transient(
            f"{option}: of {spell_count(written, 'row')} written to {path}, {rows:,} are visible there",
            in_config(f"set a folder that the driver and all executors share: {option}"),
        )


def listed(path: Path, folder: Path) -> tuple[StagedFile, ...]:
    """The files in `path`, named relative to the attempt's `folder`."""
    files = sorted(path.glob("*.parquet"))
    return tuple(StagedFile(str(f.relative_to(folder)), f.stat().st_size) for f in files)


def is_whole(path: Path, size_bytes: int) -> bool:
    """Whether the file exists with its size and has a footer."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        return path.stat().st_size == size_bytes and bool(read_metadata(path))
    except (OSError, ArrowException):
        return False


def column_names(path: Path) -> tuple[str, ...]:
    """The columns of a file, in its order."""
    from pyarrow.parquet import read_schema

    return tuple(read_schema(path).names)


def older_names(names: Sequence[str]) -> dict[str, str]:
    """Of the columns of a file of changes: what an older version called ours, each with its name of now.

    Empty for a file of this version, in which a user's columns may have those names.
    """
    return {} if own.OP in names else {name: OLDER[name] for name in names if name in OLDER}


def copy_renamed(path: Path, to: Path, names: Mapping[str, str]) -> None:
    """The file `to` has the rows of `path`, with these columns renamed. Raises Transient for disk errors."""
    from pyarrow import RecordBatch, schema
    from pyarrow.parquet import ParquetFile, ParquetWriter

    folder_made(to.parent)
    with _on_disk(to.parent), ParquetFile(path) as file:
        renamed = schema([one.with_name(names.get(one.name, one.name)) for one in file.schema_arrow])
        with ParquetWriter(to, renamed) as writer:
            for batch in file.iter_batches():
                writer.write_batch(RecordBatch.from_arrays(batch.columns, schema=renamed))


def footers(folder: Path, files: Sequence[StagedFile], columns: Sequence[str]) -> Footers:
    """Rows and NULLs, without reading rows: counting during Spark's write cost a tenth of the whole copy."""
    from pyarrow.parquet import ParquetFile

    rows, nulls = 0, dict.fromkeys(columns, 0)
    for file in files:
        with ParquetFile(folder / file.path) as parquet:
            found = parquet.metadata
        rows += found.num_rows
        _refuse_too_early(folder / file.path, found)
        schema = found.schema.to_arrow_schema() if columns else None
        places = {name: at for name in columns if schema is not None and (at := leaf_of(schema, name)) is not None}
        for group in (found.row_group(i) for i in range(found.num_row_groups)):
            for name, column in ((name, group.column(at)) for name, at in places.items()):
                # Without statistics, the sink's NOT NULL constraint finds them.
                if column.is_stats_set:
                    nulls[name] += column.statistics.null_count
    return Footers(rows, nulls)


def _refuse_too_early(path: Path, footer: Any) -> None:
    """Raises BadData for a timestamp that DuckDB could store but never show."""
    times = [i for i in range(footer.num_columns) if footer.schema.column(i).logical_type.type == "TIMESTAMP"]
    for column in (footer.row_group(g).column(i) for g in range(footer.num_row_groups) for i in times):
        known = column.statistics
        lowest = known.min_raw if known is not None and known.has_min_max else 0
        if lowest < EARLIEST_US and lowest != -(2**63) + 1:
            table, name = path.parent.parent.name, column.path_in_schema
            raise BadData(
                f"table {table!r}: column {name!r} holds a timestamp of {lowest} us since 1970, "
                "which is before the year 290309 BC",
                CORRECT_VALUE,
            )


def require_shared(config: JobConfig, session: Session) -> None:
    """This process sees what executors write to the staging folder and to a chain's spool; leaves nothing there.

    Raises UsageError when it does not. In local mode both are one process.
    """
    if config.spark.is_local:
        return
    _require_shared("job.staging", Path(config.job.staging), session())
    if config.job.strategy == "chain":
        _require_shared("spool.path", Path(config.spool.path), session())


def _require_shared(option: str, root: Path, spark: SparkSession) -> None:
    folder = root / f".try-{uuid.uuid4().hex}"
    try:
        # Many small parts, so that more than one executor gets some.
        written = write(spark.range(0, TRIED_PARTS, 1, TRIED_PARTS).toDF("id"), folder / "rows")
        found = footers(folder, listed(folder / "rows", folder), ())
        require_all(folder, written["rows"], found, option=option)
    except Transient as error:
        raise UsageError(error.message, error.hint) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def no_room(exc: Exception, folder: Path) -> Transient | None:
    """The error for a Spark failure that reports a full disk; None for another failure."""
    said = re.search(r"No space left on device|Disk quota exceeded", str(exc))
    if said is None:
        return None
    hint = in_config("free disk space, or change job.staging or spark.conf.'spark.local.dir'")
    return Transient(f"{said[0]}: the staging folder {folder}, or the folder for Spark's temporary files", hint)


def sync(folder: Path) -> None:
    """Every file and folder of the attempt is on disk: preparing the epoch is a promise."""
    for path in (folder, *folder.rglob("*")):
        if path.exists():
            sync_one(path)


def sync_one(path: Path) -> None:
    """A file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
