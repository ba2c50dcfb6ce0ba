"""The sink's tables: which exist, which a job can write to, what is created or added first, what is dropped."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from backfill_cli.contracts import SinkTable
from backfill_cli.contracts.refusals import belongs_to, require_key, rows_of_others
from backfill_cli.errors import START_OVER, Fatal, SinkInUse, StateConflict, UsageError, command, in_config
from backfill_cli.formats.frames import struct_type
from backfill_cli.lake.iceberg import metadata
from backfill_cli.lake.iceberg.places import Place, template
from backfill_cli.lake.iceberg.types import columns, wanted
from backfill_cli.lake.sink import missing_columns
from backfill_cli.lake.state import Claim, JobRecord
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.schema import Columns, columns_of
from backfill_cli.sinks.iceberg.markers import Head, job_of_refs, marked_snapshot, marker_of
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.names import backticked, quoted

PROPERTIES = {
    "format-version": "2",
    # Each commit writes a new metadata file: one commit per second would leave 86,400 files a day.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}
"""Properties of tables that the sink creates."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table of the job and its place. held: its current state, None if it does not exist.

    branch: the one that the job fills. claim: None before the job has claimed the table.
    """

    table: SinkTable
    place: Place
    columns: Columns
    held: Head | None
    branch: str | None
    claim: Claim | None

    def missing(self) -> Columns:
        """The columns that the table lacks. Raises BadData for a column of another type."""
        assert self.held is not None
        there = columns(self.table.name, self.held.told.schema())
        return missing_columns(str(self.place), there, self.columns)


def place_of(text: str, table: SinkTable) -> Place:
    """The place of a table of the job. Side tables are beside the others."""
    if "{table}" in text or not table.side:
        return Place.of(template(text, table.target))
    return Place.of(text).beside(table.target)


def check(job: str, target: Target, others: Iterable[JobRecord], into_existing: bool) -> None:
    """Raises for a table that the job cannot write to."""
    claim = target.claim
    require_key(target.table, target.columns)
    refuse_other_job(job, target, others)
    # For a table that the job has already claimed, into_existing means that the job is resumed.
    if into_existing and target.branch is not None and claim is None:
        raise UsageError(
            f"table {target.place}: branch {target.branch!r} begins empty, but --into-existing keeps the rows",
            in_config("omit --into-existing, or remove sink.branch from the config"),
        )
    if target.held is None:
        return
    target.missing()
    marker = None if claim is None else marker_of(target.held, claim)
    if claim is not None:
        refuse_other_columns(target.table, target.held, claim)
    ours = into_existing or (marker is not None and marker.epoch > 0)
    if target.held.begun and not ours and has_rows(target.held):
        if target.branch is not None:
            raise SinkInUse(
                f"branch {target.branch!r} of table {target.place} has rows that are not this job's",
                "if they are not needed: "
                + target.place.in_spark(target.place.alter(f"DROP BRANCH {target.branch}"))
                + in_config("; or name another sink.branch"),
            )
        raise rows_of_others(str(target.place))


def require_ours(table: SinkTable, place: Place, held: Head, claim: Claim, marker: Marker) -> None:
    """The table is as the job's commits left it. Raises StateConflict; Fatal for rows before the first epoch."""
    refuse_other_columns(table, held, claim)
    if not marker.epoch and table.plain_inserts and has_rows(held):
        raise Fatal(
            f"table {place} was empty when the job took it, but others added rows before its first commit",
            "remove their rows, and let them use another table; or "
            + START_OVER
            + ", into another table, or into this one by key with --into-existing",
        )


def refuse_other_columns(table: SinkTable, held: Head, claim: Claim) -> None:
    """The columns are those that the job's rows were written to. ALTER TABLE creates no snapshot, so check them.

    Raises StateConflict if one of the job's columns was dropped, even if another one now has its name.
    """
    marked = marked_snapshot(held, claim)
    then = next((one for one in held.told.schemas if marked and one.schema_id == marked.schema_id), None)
    if marked is None or then is None:
        return
    ours = {name.lower() for name in wanted(table.name, table.schema)}
    now = {one.field_id for one in held.told.schema().fields}
    gone = [one.name for one in then.fields if one.field_id not in now and one.name.lower() in ours]
    if gone:
        raise StateConflict(
            f"table {table.name!r} of the sink: column {gone[0]!r}, which the job filled, was dropped; a column "
            "that has its name now does not have its values",
            START_OVER,
        )


def refuse_other_job(job: str, target: Target, others: Iterable[JobRecord]) -> None:
    for record in others:
        for table, claim in record.claims.items():
            if Place.of(claim.place) == target.place and (record.job, table) != (job, target.table.name):
                raise belongs_to(str(target.place), record.job, table, record.owner)
    told = job_of_refs(target.held) if target.held is not None else None
    if told is not None and told[0] != job:
        raise belongs_to(str(target.place), *told, None, ": a tag of the table says so, of another sink")


def has_rows(held: metadata.Held) -> bool:
    """Whether the newest snapshot has rows, by its totals; True if its writer kept no totals."""
    return held.main is not None and metadata.summary_of(held.main).get("total-records", "1") != "0"


def create(spark: SparkSession, target: Target, properties: Mapping[str, str]) -> None:
    """The table exists, empty, with its key NOT NULL and, if the key's types allow it, as identifier fields.

    The key of a derived table can be NULL.
    """
    key = () if target.table.derived else target.table.key
    fields = {name: {**one, "nullable": name not in key} for name, one in target.columns.items()}
    if len(target.place.names) > 1:
        namespace = ".".join(map(backticked, (target.place.catalog, *target.place.names[:-1])))
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    empty = spark.createDataFrame([], struct_type(fields))
    writer = empty.writeTo(target.place.sql).using("iceberg")
    for name, value in {**PROPERTIES, **properties}.items():
        writer = writer.tableProperty(name, value)
    writer.create()
    if key and all(fields[name]["type"] not in ("float", "double") for name in key):
        spark.sql(f"ALTER TABLE {target.place.sql} SET IDENTIFIER FIELDS {', '.join(map(backticked, key))}")


def add_columns(spark: SparkSession, target: Target) -> None:
    for name, one in target.missing().items():
        kind = struct_type({name: {**one, "nullable": True}}).toDDL()
        spark.sql(f"ALTER TABLE {target.place.sql} ADD COLUMN {kind}")


def rows_at(
    table: SinkTable,
    place: Place,
    spark: SparkSession,
    snapshot: int | None,
    files: Collection[str] | None = None,
) -> DataFrame:
    """All rows at a snapshot, in the table's Spark schema; columns added later are NULL. files: in these alone."""
    version = "" if snapshot is None else f" VERSION AS OF {snapshot}"
    rows = spark.sql(f"SELECT * FROM {place.sql}{version}")
    if files is not None:
        rows = rows.where(F.col("_file").isin(sorted(files)))
    there = {name.lower() for name in rows.columns}
    select = []
    for one in struct_type(columns_of(table.schema)).fields:
        value = quoted(one.name) if one.name.lower() in there else F.lit(None)
        select.append(value.cast(one.dataType).alias(one.name))
    return rows.select(*select)


def refuse_live(job: str, claim: Claim, head: Head | None) -> None:
    """Raises UsageError for a table that was cut over: people query the job's rows."""
    if head is not None and head.is_live:
        raise UsageError(
            f"{claim.place} was cut over: queries of it see the rows of job {job!r}",
            command(f"cutover {job} --reverse")
            + ", then drop it; or forget the job and keep the rows: "
            + command(f"drop {job} --confirm {job}"),
        )
