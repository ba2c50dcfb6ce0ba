"""Delta tables as a sink: each table of an epoch is one commit, whose number is made of token and epoch.

Reading order: `tables` locates the tables and finds what is missing, `creating` creates it, `marks` makes each
commit count once and for one runner, `apply` writes.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import EpochCommit, SinkExtras, SinkTable, Swap
from backfill_cli.contracts.refusals import is_due, marker_gone, refuse_old_token, written_too_often
from backfill_cli.errors import RETRIED, BackfillError, StateConflict, Transient, command
from backfill_cli.failpoint import hit
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta import is_name
from backfill_cli.lake.delta.commits import stamp
from backfill_cli.lake.delta.damage import faulty
from backfill_cli.lake.delta.edge import delta_place, where_at
from backfill_cli.lake.delta.names import sql_at, sql_of
from backfill_cli.lake.delta.plain import version_files
from backfill_cli.lake.sink import LakeCopy, LakeSink, copied, tables_of
from backfill_cli.lake.state import Claim, JobRecord, jobs
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.cutover import kept_name
from backfill_cli.model.schema import names_of
from backfill_cli.sinks.delta import DeltaOptions
from backfill_cli.sinks.delta.adopt import adoptable, linked
from backfill_cli.sinks.delta.apply import Overtaken, apply, require_unique
from backfill_cli.sinks.delta.creating import create
from backfill_cli.sinks.delta.marks import LAST_TOKEN, TRIES, MarkedTable, marks_of, number_of
from backfill_cli.sinks.delta.restored import Kept
from backfill_cli.sinks.delta.tables import Named, Template, check, claim, droppable, marked, state_of, where_of
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.names import quoted
from backfill_cli.spark.object_store import store_errors

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

HOLDER = "folder"


class DeltaSink(LakeSink):
    """`contracts.Sink` over folders of Delta tables. Spark writes the rows; metadata is handled without it."""

    def __init__(self, options: DeltaOptions) -> None:
        super().__init__()
        self._options = options
        self._kept = Kept()

    @cached_property
    def _template(self) -> Template:
        told = self._options.table
        return Named(told, self._session) if is_name(told) else told

    @cached_property
    def _at(self) -> Blobs:
        return state_of(self._template)

    def _folder(self) -> Blobs:
        return self._at

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        missing = check(self._at, self._template, job, tables, into_existing)
        create(missing, self._options.properties, lambda: self._spark)
        claim(self._at, self._template, job, tables)

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        check(self._at, self._template, job, tables, into_existing)

    def places(self, tables: Sequence[SinkTable]) -> Mapping[str, frozenset[str]]:
        return {t.name: frozenset({delta_place(where_of(self._template, t))}) for t in tables}

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None:
        self._state(job).own(owner, instead_of)

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

    def commit(self, commit: EpochCommit) -> None:
        tables = tables_of(commit)
        state = self._state(commit.job)
        record = state.record()
        if record is None:
            raise marker_gone(commit, tables[0].name, HOLDER)
        for table in tables:
            found = marked(self._at, self._template, commit.job, record, table)
            held = found.versioned() if found is not None else None
            due = is_due(commit, table.name, None if held is None else held[1], HOLDER)
            assert found is not None
            assert held is not None
            version, marker = held
            self._kept.require(found, version, marker.epoch)
            if not due:
                continue
            state.save(commit, marker)
            found.mark(commit.token, commit.epoch, commit.attempt, marker.epoch)
            hit("sink-before-commit")
            self._commit(commit, table, found)
            hit("sink-after-table")

    def _commit(self, commit: EpochCommit, table: SinkTable, found: MarkedTable) -> None:
        """The table is at the epoch, whoever wrote to it meanwhile. Raises Held if a newer runner did."""
        number = number_of(commit.token, commit.epoch)
        staged = commit.staged.tables.get(table.name)
        if table.name in commit.unique:
            require_unique(self._spark, commit, table, found.where)
        files: Sequence[AddAction] | None = None
        if staged is None or not (staged.rows or staged.changed or staged.deleted or staged.truncated):
            files = ()
        elif self._adopts(commit, table, found):
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

    def _adopts(self, commit: EpochCommit, table: SinkTable, found: MarkedTable) -> bool:
        staged = commit.staged.tables[table.name]
        plain = table.plain_inserts and staged.rows and not (staged.changed or staged.deleted or staged.truncated)
        return bool(plain) and adoptable(found.where.open(), found.where, commit, table)

    def _by_log(
        self, commit: EpochCommit, table: SinkTable, found: MarkedTable, number: int, files: "Sequence[AddAction]"
    ) -> None:
        """The table has a commit written without Spark, on top of the version whose marker was read."""
        for _ in range(TRIES):
            now = found.versioned()
            if now is None or not is_due(commit, table.name, now[1], HOLDER):
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
            raise marker_gone(commit, table.name, HOLDER)
        version, marker = held
        refuse_old_token(commit.job, table.name, commit.token, marker)
        if (marker.epoch, marker.token) != (commit.epoch, commit.token):
            raise StateConflict(
                f"job {commit.job!r}: {found.where.shown} is at epoch {marker.epoch} of token {marker.token} "
                f"after epoch {commit.epoch} of token {commit.token} was committed",
                command(f"status {commit.job}"),
            )
        self._kept.require(found, version, marker.epoch)

    @property
    def extras(self) -> SinkExtras:
        return SinkExtras(copied=self.copied, statements=self.statements)

    def copied(self, job: str, live: bool, folder: Path) -> "AbstractContextManager[LakeCopy]":
        tables = {one.name: one for one in self._marked(job)}

        def rows(spark: SparkSession, table: SinkTable, version: int | None) -> DataFrame:
            frame = spark.read.format("delta").option("versionAsOf", version)
            names = (quoted(name) for name in names_of(table.schema))
            return frame.load(tables[table.name].where.uri).select(*names)

        def fault(table: str, version: int | None) -> BackfillError | None:
            return faulty(tables[table].where, partial(version_files, tables[table].where, version))

        def known(table: str, version: int) -> str:
            """A recreated table has the same version numbers: the identity of the log file distinguishes them."""
            return str((version, stamp(tables[table].where, version)))

        def look() -> Mapping[str, tuple[int, Marker] | None]:
            return {name: one.versioned() for name, one in tables.items()}

        return copied(self._session, self._state(job), look, live, rows, fault, known)

    def statements(self, swaps: Sequence[Swap], epoch: int) -> Sequence[str]:
        return [
            statement
            for one in swaps
            for statement in (
                f"ALTER TABLE {one.live} RENAME TO {kept_name(one.live, epoch)};  -- if a table has that name",
                f"CREATE OR REPLACE VIEW {one.live} AS SELECT * FROM {_sql(self._template, one.table)};",
            )
        ]

    def drop(self, tables: Sequence[SinkTable]) -> None:
        places = {delta_place(where): where for where in droppable(self._at, self._template, tables)}
        for record in jobs(self._at):
            if any(one.place in places for one in record.claims.values()):
                going = [one for one in self._marked(record.job) if one.claim.place in places]
                markers = {one.name: found for one in going if (found := one.marker_or_number()) is not None}
                self._state(record.job).note_dropped(markers)
        for where in places.values():
            with store_errors(where.shown):
                where.place.fs.delete_dir(where.place.folder)
        if isinstance(self._template, Named):
            for table in tables:
                self._template.gone(table)

    def forget(self, job: str) -> None:
        """The job can commit no more, not even a commit under way: its transaction numbers are used up."""
        for table in self._marked(job):
            found = table.numbered()
            if found is not None and found[1] < LAST_TOKEN:
                table.raise_token(LAST_TOKEN)
        self._state(job).forget()

    def _marked(self, job: str) -> list[MarkedTable]:
        """The tables that the job has claimed, at the places of its claims."""
        record = self._record(job)
        return [self._of(job, *one) for one in record.claims.items()] if record is not None else []

    def _of(self, job: str, table: str, claim: Claim) -> MarkedTable:
        return MarkedTable(job, table, claim, where_at(claim.place), marks_of(self._at, job, claim))


def _sql(template: Template, table: SinkTable) -> str:
    if isinstance(template, Named):
        return sql_of(template.name(table))
    return sql_at(where_of(template, table))
