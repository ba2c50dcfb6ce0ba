"""Delta tables as a sink: each table of an epoch is one commit, whose number is made of token and epoch.

Reading order: `tables` locates the tables and creates what is missing, `marks` makes each commit count once and
for one runner, `apply` writes.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from deltalake.transaction import AddAction

from backfill_cli.contracts import EpochCommit, SinkExtras, SinkTable, Swap
from backfill_cli.contracts.refusals import is_due, marker_gone, refuse_old_token, written_too_often
from backfill_cli.errors import RETRIED, BackfillError, StateConflict, Transient, command
from backfill_cli.failpoint import hit
from backfill_cli.formats.frames import reader, struct_type
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta import is_name
from backfill_cli.lake.delta.commits import faulty, moved_files, stamp, wrote_no_row
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.plain import version_files, whole_files
from backfill_cli.lake.merge import staged_of
from backfill_cli.lake.sink import LakeSink
from backfill_cli.lake.state import Claim, JobRecord, jobs
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.cutover import kept_name
from backfill_cli.model.schema import Columns, columns_of
from backfill_cli.sinks.delta import DeltaOptions
from backfill_cli.sinks.delta.adopt import adoptable, linked
from backfill_cli.sinks.delta.apply import Overtaken, apply, require_unique
from backfill_cli.sinks.delta.marks import LAST_TOKEN, TRIES, MarkedTable, marks_of, number_of
from backfill_cli.sinks.delta.restored import Kept
from backfill_cli.sinks.delta.tables import Folders, Named, create, refuse_other_owner
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.names import quoted
from backfill_cli.spark.object_store import store_errors


class DeltaSink(LakeSink):
    """`contracts.Sink` over folders of Delta tables. Spark writes the rows; metadata is handled without it."""

    holder = "folder"
    replaces_columns = True

    def __init__(self, options: DeltaOptions) -> None:
        super().__init__()
        self.extras = SinkExtras(copied=self.copied, statements=self.statements, derives=self.derives)
        self._options = options
        self._kept = Kept()
        told = options.table
        self._tables = Named(told, lambda: self._session()) if is_name(told) else Folders(told)

    def _folder(self) -> Blobs:
        return self._tables.state

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        missing = self._tables.check(job, tables, into_existing)
        create(missing, self._options.properties, lambda: self._spark)
        self._tables.claim(job, tables)

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        self._tables.check(job, tables, into_existing)

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        return {one.name: frozenset({self._tables.where(one).identity}) for one in tables}

    def fence(self, job: str, token: int) -> None:
        tables = self._marked(job)
        for table in tables:
            held = table.versioned()
            if held is not None:
                refuse_old_token(job, table.name, token, held[1])
                self._kept.require(table, held[0], held[1].epoch)
        for table in tables:
            table.raise_token(token)

    def _marker(self, record: JobRecord, table: str, claim: Claim) -> Marker | None:
        return self._of(record.job, table, claim).marker()

    def commit_table(self, commit: EpochCommit, table: SinkTable, claim: Claim) -> None:
        found = self._tables.marked(commit.job, table, claim)
        held = found.versioned()
        due = is_due(commit, table.name, None if held is None else held[1], self.holder)
        assert held is not None
        version, marker = held
        self._kept.require(found, version, marker.epoch)
        if due:
            if not table.derived:  # with a table of the job it has been saved
                self._state(commit.job).save(commit, marker)
            found.mark(commit.token, commit.epoch, commit.attempt, marker.epoch)
            hit("sink-before-commit")
            self._write(commit, table, found)
            hit("sink-after-table")

    def _write(self, commit: EpochCommit, table: SinkTable, found: MarkedTable) -> None:
        """The table is at the epoch, whoever wrote to it meanwhile. Raises Held if a newer runner did."""
        number = number_of(commit.token, commit.epoch)
        staged = staged_of(commit, table)
        changed = staged.changed or staged.deleted or staged.truncated
        if table.name in commit.unique:
            require_unique(self._spark, commit, table, found.where)
        files: Sequence[AddAction] | None = None
        if not (staged.rows or changed):
            files = ()
        elif table.plain_inserts and not changed and adoptable(found.where.open(), found.where, commit, table):
            files = linked(found.where, commit, table)
        if files is not None:
            self._by_log(commit, table, found, number, files)
        else:
            try:
                apply(self._spark, commit, table, found.where, found.app, number)
            except Overtaken as exc:
                self._require_ours(commit, table, found)
                raise Transient(f"{found.where.shown}: {exc}", RETRIED) from exc
        self._require_ours(commit, table, found)

    def _by_log(
        self, commit: EpochCommit, table: SinkTable, found: MarkedTable, number: int, files: Sequence[AddAction]
    ) -> None:
        """The table has a commit written without Spark, on top of the version whose marker was read."""
        for _ in range(TRIES):
            now = found.versioned()
            if now is None or not is_due(commit, table.name, now[1], self.holder):
                return
            self._kept.require(found, now[0], now[1].epoch)
            if found.write(number, now[0], files):
                return
        raise written_too_often(found.where.shown, "the epoch's commit to succeed")

    def _require_ours(self, commit: EpochCommit, table: SinkTable, found: MarkedTable) -> None:
        """The table has the commit, and the rows of the epochs before it.

        Delta silently skips a commit that is not newer, and an append does not conflict with a RESTORE.
        """
        held = found.versioned()
        if held is None:
            raise marker_gone(commit, table.name, self.holder)
        version, marker = held
        refuse_old_token(commit.job, table.name, commit.token, marker)
        if (marker.epoch, marker.token) != (commit.epoch, commit.token):
            raise StateConflict(
                f"job {commit.job!r}: {found.where.shown} is at commit {marker.epoch} of runner "
                f"{marker.token} right after commit {commit.epoch} of runner {commit.token}",
                command(f"status {commit.job}"),
            )
        self._kept.require(found, version, marker.epoch)

    def now(self, job: str, table: str, claim: Claim) -> tuple[int | None, Marker] | None:
        return self._of(job, table, claim).versioned()

    def rows(
        self,
        spark: SparkSession,
        table: SinkTable,
        claim: Claim,
        version: int | None,
        files: Collection[str] | None = None,
    ) -> DataFrame:
        """Columns that the table gained later are NULL."""
        frame = spark.read.format("delta").option("versionAsOf", version).load(Where.at(claim.place).uri)
        if files is not None:
            frame = frame.where(F.col("_metadata.file_name").isin(sorted(files)))
        return _with_all(frame, columns_of(table.schema))

    def rows_of_commit(
        self, spark: SparkSession, table: SinkTable, claim: Claim, version: int | None
    ) -> DataFrame:
        columns = columns_of(table.schema)
        if (found := whole_files(Where.at(claim.place), version, columns)) is None:
            return self.rows(spark, table, claim, version)
        paths, held = found
        return _with_all(reader(spark, {name: columns[name] for name in held}).parquet(*paths), columns)

    def columns_at(self, table: SinkTable) -> Columns | None:
        where = self._tables.where(table)
        return columns_of(where.open().schema().to_json()) if where.exists() else None

    def has_rows(self, table: SinkTable) -> bool:
        return bool(self._tables.where(table).open().get_add_actions().num_rows)

    def claim_at(self, table: SinkTable) -> Claim:
        return Claim(self._tables.where(table).identity, "")

    def refuse_other_job(self, job: str, table: SinkTable) -> None:
        refuse_other_owner(jobs(self._folder()), job, table, self._tables.where(table))

    def moved(self, job: str, claim: Claim, since: int | None, now: int | None) -> frozenset[str] | None:
        if since is None or now is None or now < since:
            return None
        where, between = Where.at(claim.place), range(since + 1, now + 1)
        if all(wrote_no_row(where, at, f"backfill/{job}/") for at in between):
            return frozenset()
        return moved_files(where, between)

    def begin(self, job: str, table: str, claim: Claim) -> None:
        found = self._of(job, table, claim)
        for _ in range(TRIES):
            if (held := found.numbered()) is None or found.is_numbered():
                return
            if found.write(number_of(claim.token, 0), held[0]):
                return
        raise written_too_often(found.where.shown, "its marker")

    def fault(self, claim: Claim, version: int | None) -> BackfillError | None:
        where = Where.at(claim.place)
        return faulty(where, partial(version_files, where, version))

    def identity(self, claim: Claim, version: int | None) -> str:
        """A recreated table has the same version numbers: the identity of the log file distinguishes them."""
        return str((version, stamp(Where.at(claim.place), version or 0)))

    def statements(self, swaps: Sequence[Swap], epoch: int) -> Sequence[str]:
        return [
            statement
            for one in swaps
            for statement in (
                f"ALTER TABLE {one.live} RENAME TO {kept_name(one.live, epoch)};  -- if a table has that name",
                f"CREATE OR REPLACE VIEW {one.live} AS SELECT * FROM {self._tables.sql(one.table)};",
            )
        ]

    def drop(self, tables: Sequence[SinkTable]) -> None:
        places = {where.identity: where for where in self._tables.droppable(tables)}
        for record in jobs(self._folder()):
            if any(one.place in places for one in record.claims.values()):
                going = [one for one in self._marked(record.job) if one.claim.place in places]
                markers = {one.name: found for one in going if (found := one.marker_or_number()) is not None}
                self._state(record.job).note_dropped(markers)
        for where in places.values():
            with store_errors(where.shown):
                where.fs.delete_dir(where.folder)
        for table in tables:
            self._tables.gone(table)

    def forget(self, job: str) -> None:
        """The job can commit no more, not even a commit under way: its transaction numbers are used up."""
        for table in self._marked(job):
            found = table.numbered()
            if found is not None and found[1] < LAST_TOKEN:
                table.raise_token(LAST_TOKEN)
        self._state(job).forget()

    def _marked(self, job: str) -> list[MarkedTable]:
        """The tables that the job has claimed, at the places of its claims."""
        return [self._of(job, *one) for one in self.claims(job).items()]

    def _of(self, job: str, table: str, claim: Claim) -> MarkedTable:
        return MarkedTable(job, table, claim, Where.at(claim.place), marks_of(self._folder(), job, claim))


def _with_all(frame: DataFrame, columns: Columns) -> DataFrame:
    """The rows with these columns; those that they lack are NULL."""
    there = {name.lower() for name in frame.columns}
    return frame.select(
        *(
            quoted(one.name) if one.name.lower() in there else F.lit(None).cast(one.dataType).alias(one.name)
            for one in struct_type(columns).fields
        )
    )
