"""Rows become files, those that cannot be read apart: for a side table of the sink, with place and reason.

A frame that can have such rows has the column `own.QUARANTINED`, a struct of what the side table holds; it is NULL
for a row that can be read.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backfill_cli.config.sections import Transform
from backfill_cli.contracts import SinkTable, Source, own
from backfill_cli.engine.staging import transform
from backfill_cli.engine.staging.files import Footers, footers, listed, require_all, write
from backfill_cli.errors import BadData, in_config
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.model.schema import columns_of, field, fields_of, schema_text
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.names import backticked


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in files. found: of these files. side: the side table's rows, if there are any."""

    files: tuple[StagedFile, ...]
    found: Footers
    side: Mapping[str, StagedTable]


def write_rows(
    spark: SparkSession,
    frame: DataFrame,
    shape: Transform,
    table: str,
    path: Path,
    folder: Path,
    columns: Sequence[str] = (),
) -> Rows:
    """The rows in the sink's form are files in the new folder `path`, named relative to the attempt's `folder`.

    columns: those whose NULLs are counted.
    """
    if own.QUARANTINED in frame.columns:
        return _write_apart(spark, _shaped(frame, shape), table, path, folder, columns)
    written = write(transform.rows(frame, shape), path)
    files = listed(path, folder)
    found = footers(folder, files, columns)
    require_all(path, written["rows"], found)
    return Rows(files, found, {})


def readable(
    spark: SparkSession, frame: DataFrame, table: str, folder: Path
) -> tuple[DataFrame, Mapping[str, StagedTable]]:
    """Those rows of the frame that can be read, and the side table's, if there are any.

    A frame that can have such rows is written first, so that its source is not read twice.
    """
    if own.QUARANTINED not in frame.columns:
        return frame, {}
    path = folder / table / "read"
    side = _write_apart(spark, frame, table, path, folder).side
    good = path / _GOOD
    good.mkdir(exist_ok=True)  # Spark writes no folder if there are no rows
    return spark.read.schema(frame.drop(own.QUARANTINED).schema).parquet(str(good)), side


_GOOD, _BAD = f"{own.BAD}=false", f"{own.BAD}=true"


def _write_apart(
    spark: SparkSession, frame: DataFrame, table: str, path: Path, folder: Path, columns: Sequence[str] = ()
) -> Rows:
    written = write(frame.withColumn(own.BAD, F.col(own.QUARANTINED).isNotNull()), path, by=own.BAD)
    files = listed(path / _GOOD, folder)
    good, bad = footers(folder, files, columns), footers(folder, listed(path / _BAD, folder), ())
    require_all(path, written["rows"], good, bad)
    return Rows(files, good, _side_rows(spark, path / _BAD, bad.rows, side_name(table), folder))


def _side_rows(spark: SparkSession, bad: Path, count: int, side: str, folder: Path) -> Mapping[str, StagedTable]:
    """They are few, so they are copied from what was written."""
    if not count:
        return {}
    path = folder / side / bad.parent.name  # of the reads, and of the changes
    write(spark.read.parquet(str(bad)).select(f"{own.QUARANTINED}.*"), path)
    files = listed(path, folder)
    require_all(path, count, footers(folder, files, ()))
    return {side: StagedTable(inserts=files, rows=count)}


def judged(frame: DataFrame, upstream: Source, table: str) -> tuple[DataFrame, Callable[[], None]]:
    """The frame without `own.ERROR` and `own.RAW`, and what is called once it is written.

    Where the job quarantines, rows that cannot be read are marked instead; otherwise the function raises BadData
    naming the first of them.
    """
    if own.ERROR not in frame.columns:
        return frame, lambda: None
    capabilities = upstream.capabilities
    if capabilities.quarantines:
        return marked(frame, capabilities.place), lambda: None
    from pyspark.sql import Observation

    seen = Observation()
    first = F.min(F.when(F.col(own.ERROR).isNotNull(), F.struct(*capabilities.place, own.ERROR)))
    frame = frame.observe(seen, F.count(own.ERROR).alias("bad"), first.alias("first"))

    def check() -> None:
        found = seen.get
        if found["first"] is not None:
            raise unreadable(table, found["bad"], tuple(found["first"]))

    return frame.drop(own.ERROR, own.RAW), check


def unreadable(table: str, count: int, first: tuple[int, int, str]) -> BadData:
    """The error for records that cannot be read. first: partition, offset and fault of the first of them."""
    partition, offset, fault = first
    more = f" (and {count - 1} more)" if count > 1 else ""
    return BadData(
        f"table {table!r}: the record at partition {partition}, offset {offset} cannot be read: {fault}{more}",
        in_config(
            "put it, and all others that cannot be read, into a quarantine table of the sink: "
            'upstream.on_error = "quarantine"; to fix the program that writes them helps later records only'
        ),
    ).of(table)


def marked(frame: DataFrame, place: Sequence[str]) -> DataFrame:
    """The frame with `own.QUARANTINED` instead of `own.ERROR` and `own.RAW`. place: the columns that say where."""
    kept = F.struct(*place, F.col(own.RAW).alias("value"), F.col(own.ERROR).alias("reason"))
    bad = frame.withColumn(own.QUARANTINED, F.when(F.col(own.ERROR).isNotNull(), kept))
    return bad.drop(own.ERROR, own.RAW)


def quarantined(frame: DataFrame) -> DataFrame:
    """What the side table holds of a frame's rows."""
    return frame.where(f"{own.QUARANTINED} IS NOT NULL").select(f"{own.QUARANTINED}.*")


def sound(frame: DataFrame) -> DataFrame:
    """The frame's rows that can be read."""
    if own.QUARANTINED not in frame.columns:
        return frame
    return frame.where(f"{own.QUARANTINED} IS NULL").drop(own.QUARANTINED)


def _shaped(frame: DataFrame, shape: Transform) -> DataFrame:
    """The sink's columns and `own.QUARANTINED`; rows that cannot be read are not subject to `where`."""
    kept = frame if shape.where is None else frame.where(f"{own.QUARANTINED} IS NOT NULL OR ({shape.where})")
    row = kept.drop(own.QUARANTINED)
    columns: list[str] = []
    for text in shape.select or ["*"]:
        stands_for_many = text.lstrip().startswith("*")
        columns += [backticked(name) for name in row.selectExpr(text).columns] if stands_for_many else [text]
    return kept.selectExpr(*columns, own.QUARANTINED)


def side_name(table: str) -> str:
    return f"{table}.quarantine"


def side_table(of: SinkTable, upstream: Source, source: str) -> SinkTable:
    """What the sink keeps of rows that could not be read: where they are, `value BINARY, reason STRING`.

    They are at a partition and offset of a partitioned log, else at a line of a file. source: Spark schema of the
    table's source rows as JSON.
    """
    place = upstream.capabilities.place
    fields = [one for one in fields_of(source) if one["name"] in place]
    if not place:
        place = ("file", "line")
        fields = [field("file", "string"), field("line", "long")]
    fields += [field("value", "binary"), field("reason", "string")]
    beside, dot, name = of.target.rpartition(".")
    return replace(
        of,
        name=side_name(of.name),
        target=f"{beside}{dot}{own.PREFIX}quarantine_{name}",
        key=place,
        schema=json.dumps({"type": "struct", "fields": fields}),
        side=True,
    )


def without_reason(table: SinkTable) -> SinkTable:
    """A side table without the reasons, which another version of this program has in other words; others as is."""
    if not table.side:
        return table
    kept = {name: one for name, one in columns_of(table.schema).items() if name != "reason"}
    return replace(table, schema=schema_text(kept))
