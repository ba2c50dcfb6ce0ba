"""`backfill verify`: compares upstream and sink at one checkpoint, table by table. Read-only; blocks no runner."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Protocol

import tenacity
from pyspark.sql import DataFrame, SparkSession

from backfill_cli import __version__
from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import Copied, JobDefinition, SavedJob, SinkCopy, SinkTable
from backfill_cli.engine.job.aside import require_none
from backfill_cli.engine.job.converging import converging
from backfill_cli.engine.job.fixable import why_not
from backfill_cli.engine.job.ownership import start_over_named
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.quarantine import side_name
from backfill_cli.engine.staging.scratch import folder_of
from backfill_cli.engine.verify.expected import CurrentRows, Expected, IndependentRows
from backfill_cli.engine.verify.extent import bounds, judging, pushed
from backfill_cli.engine.verify.progress import Steps, TaskCounts
from backfill_cli.engine.verify.table import compare
from backfill_cli.errors import BackfillError, Hint, HistoryGone, Transient, UsageError, command
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Phase
from backfill_cli.model.units import nearest_first, spell_known
from backfill_cli.model.verify import EVERYTHING, Asked, TableVerdict, VerifyProgress, VerifyReport, to_fix

ROWS_NAMED = 20

Rows = Callable[[SinkTable, Checkpoint], DataFrame]
"""f(upstream at the checkpoint) of one table: the sink's columns, unique by key."""

Tell = Callable[[VerifyProgress], None]

Changes = Callable[[SinkTable, DataFrame], None]
"""Receives what makes a differing table equal: net changes `(own.OP, row…)`, while both sides are readable."""


class Found(Protocol):
    """A table's verdict, and what makes it equal."""

    @property
    def verdict(self) -> TableVerdict: ...

    def changes(self) -> DataFrame: ...


Comparing = Callable[[SparkSession, DataFrame, SinkCopy, SinkTable, int, float | None, Steps], Found]
"""As `table.compare`."""


def verify(
    job: str,
    catalog: Catalog,
    independent: bool = False,
    asked: Asked = EVERYTHING,
    tell: Tell = lambda _said: None,
    restart: bool = False,
) -> VerifyReport:
    """Compare a job's upstream and sink at the sink's last checkpoint, in its own Spark session.

    restart: also compare what an unfinished verify has already compared.

    independent: DuckDB reads the upstream instead of our readers (see `IndependentRows` for what it refuses).
    tell: receives the progress, also from another thread.

    Raises UsageError for a sink that cannot be read back or holds nothing yet, and what the connectors raise.
    """
    definition, aside = compared_of(catalog.definition(job), asked)
    live = catalog.job(job).live
    require_known(definition, asked)
    require_drained(definition, catalog, live)
    config = config_of(definition)
    if not asked.part.whole:
        (held,) = [one for one in definition.tables if one.name in asked.tables]
        config = config.limited(held.name, pushed(asked.part, held, config.table(held.name).key[0]))
    with (
        history_named(job),
        start_over_named(job, catalog),
        Resources(config) as resources,
        Steps(job, tell, time.monotonic) as steps,
    ):
        if restart:
            catalog.verified.forget_equal(job)
        verification = Verification.of(definition, config, resources, live, asked, steps, independent, catalog)
        if not asked.part.whole:
            verification = replace(verification, comparing=judging(asked.part))
        report = replace(verification.report(), aside=aside)
    return noted(report, catalog) if asked.part.whole else report  # a part tells nothing of the table


def compared_of(job: JobDefinition, asked: Asked) -> tuple[JobDefinition, tuple[str, ...]]:
    """The job with the tables that can be compared, and those that are set aside or being put back.

    Raises UsageError if one of these was asked for.
    """
    aside = tuple(one.table for one in job.aside)
    if wanted := [one for one in job.aside if one.table in asked.tables]:
        require_none(replace(job, aside=(wanted[0],)), "its rows cannot be compared")
    names = {*aside, *map(side_name, aside)}
    return replace(job, tables=tuple(one for one in job.tables if one.name not in names)), aside


def config_of(definition: JobDefinition) -> JobConfig:
    """The job's config. One that has quarantined rows goes on reading past them, whatever is set by now."""
    config = from_stored(definition.config)
    if any(table.side for table in definition.tables) and "on_error" in type(config.upstream).model_fields:
        upstream = config.tree["upstream"] | {"on_error": "quarantine"}
        return from_stored(json.dumps(config.tree | {"upstream": upstream}))
    return config


def noted(report: VerifyReport, catalog: Catalog) -> VerifyReport:
    """The report, also stored in the catalog for `status`."""
    with suppress(BackfillError):  # the report is valid even if the catalog cannot be written
        catalog.verified.note(report)
    return report


def require_known(definition: JobDefinition, asked: Asked) -> None:
    """Raises UsageError for a table that the job does not have; lists those that it has, nearest first."""
    known = definition.names
    for name in asked.tables:
        if name not in known:
            raise UsageError(
                f"job {definition.name!r}: table {name!r} does not exist{spell_known(name, known)}",
                command(f"verify {definition.name} --table {quote(nearest_first(name, known)[0])}"),
            )


def require_drained(definition: JobDefinition, catalog: Catalog, live: bool) -> None:
    """Raises Transient while a chain job's spool holds changes that are not applied yet."""
    job = definition.name
    if definition.strategy == "chain" and catalog.change_logs.is_spooled(job):
        run = () if live else (f"resume {job} --detach",)
        paused = f"pause {job} --all --wait", f"verify {job}", f"resume {job}"
        raise Transient(
            f"job {job!r}: its spool holds changes that are not applied yet and that the upstream has discarded: "
            "there is nothing to compare with until they are applied",
            command(*run, f"wait {job} --for caught-up", *paused),
        )


@contextmanager
def history_named(job: str) -> Iterator[None]:
    """Reports an upstream that no longer has what a comparison needs as such, not as a fault in the sink's rows.

    Replaces an error whose hint, meant for a run, would be to start over: the sink's rows may still be right.
    """
    try:
        yield
    except HistoryGone as gone:
        kept = Hint() if gone.hint.starts_over else gone.hint
        see = "its tables are unchanged, and may still be right; to see the job: " + command(f"status {job}")
        raise HistoryGone(f"job {job!r} cannot be verified: {gone.message}", kept.also("; ", see)) from gone


@dataclass(frozen=True, slots=True)
class Memory:
    """What an unfinished `verify` had compared: whole tables that were equal, kept in the catalog.

    A table is skipped only if nothing that its comparison depends on can have changed: the basis covers all of
    that, and nothing is remembered for another basis.
    """

    catalog: Catalog
    job: str
    basis: str

    def equal(self, tables: Sequence[SinkTable]) -> Mapping[str, tuple[TableVerdict, int]]:
        """By table that was found equal: its verdict, and when it was found, ms."""
        targets = {table.name: table.target for table in tables}
        return {
            name: (TableVerdict(name, targets[name], True, upstream, sink), at_ms)
            for name, upstream, sink, at_ms in self.catalog.verified.equal(self.job, self.basis)
        }

    def note(self, verdict: TableVerdict) -> None:
        """Remembers an equal table for later verifies with this basis. A table that differs is read again."""
        if verdict.equal:
            with suppress(BackfillError):  # the verdict is valid even if the catalog cannot be written
                self.catalog.verified.note_equal(self.job, self.basis, verdict)


@dataclass(frozen=True)
class Verification:
    """One job's comparison, which can be repeated. live: a runner has the job.

    catalog: remembers which tables an unfinished verify found equal; None: nothing is remembered. comparing: how a
    table is compared.
    """

    definition: JobDefinition
    config: JobConfig
    resources: Resources
    copied: Copied
    live: bool
    asked: Asked
    steps: Steps
    independent: bool = False
    catalog: Catalog | None = None
    comparing: Comparing = compare

    @classmethod
    def of(
        cls,
        definition: JobDefinition,
        config: JobConfig,
        resources: Resources,
        live: bool,
        asked: Asked,
        steps: Steps,
        independent: bool = False,
        catalog: Catalog | None = None,
    ) -> "Verification":
        """Starts Spark and resumes the pin. Raises UsageError for a sink that cannot be read back."""
        copied = resources.sink.extras.copied
        if copied is None:
            kind = config.tree["sink"]["type"]
            raise UsageError(
                f"the sink of job {definition.name!r} ({kind}) cannot be read back, so it cannot be verified",
                "compare its tables with the upstream's by its own SQL: "
                f"{', '.join(table.target for table in definition.tables)}",
            )
        steps.doing("starting Spark")
        upstream, spark = resources.upstream, resources.spark
        steps.counts = TaskCounts(spark)
        steps.doing("reading the upstream's metadata")
        upstream.restore(definition.pin)
        return cls(definition, config, resources, copied, live, asked, steps, independent, catalog)

    def report(self, begin: Callable[[], Changes] | None = None) -> VerifyReport:
        """Compares upstream and sink as they are now. begin: called per attempt, returns the receiver of changes.

        A transient failure is retried once: a reader that must read again, a commit in between.
        """
        passing = tenacity.retry_if_exception_type(Transient)
        retrying = tenacity.Retrying(retry=passing, stop=tenacity.stop_after_attempt(2), reraise=True)
        for attempt in retrying:
            with attempt:
                self.steps.attempt = attempt.retry_state.attempt_number
                return self._tried(None if begin is None else begin())
        raise AssertionError("the last attempt returns or raises")

    def _tried(self, take: Changes | None) -> VerifyReport:
        upstream, spark = self.resources.upstream, self.resources.spark
        only = None
        if not self.asked.part.whole:
            (held,) = [one for one in self.definition.tables if one.name in self.asked.tables]
            only = bounds(self.asked.part, held, self.config.table(held.name).key[0])
        rows = Expected(spark, upstream, self.config, self.definition.pin, only=only)
        with explaining(upstream, self.config):
            return self._compared(rows, take)

    def _compared(self, rows: Expected, take: Changes | None) -> VerifyReport:
        upstream, spark = self.resources.upstream, self.resources.spark
        log = upstream.capabilities.log
        with self._folder() if self.independent or log is not None else nullcontext(Path()) as folder:
            if self.independent:
                read = IndependentRows(spark, upstream, self.config, self.definition.pin, folder)
                return replace(self.against(read, take), independent=True)
            if log is None:
                return self.against(rows, take)
            now = CurrentRows(spark, upstream, self.config, folder, self.live, self.asked.tables)
            held_back = log.retained() if self.live else nullcontext("")  # while a runner lets the log go
            with held_back as held_up:  # before the sink's checkpoint is known: it is not older
                self.steps.holds(held_up)
                return replace(self.against(now, take), not_compared=now.not_compared)

    def _folder(self) -> AbstractContextManager[Path]:
        """A place that both Spark and the sink can write to; nothing of it is left."""
        return folder_of(Path(self.config.job.staging) / self.definition.name)

    def against(self, expected: Rows | Expected | CurrentRows, take: Changes | None = None) -> VerifyReport:
        """Compare the sink, as it is between two commits, with the upstream's rows at the sink's checkpoint.

        The checkpoint is read from the same copy as the rows, so that they match while the job continues.
        take: called with each table that differs. Raises UsageError when the sink has no record of the job yet.
        """
        began_s = time.monotonic()
        definition, asked, steps = self.definition, self.asked, self.steps
        again = f", attempt {steps.attempt}" if steps.attempt > 1 else ""
        steps.doing(f"{'taking a copy of the sink' if self.live else 'opening the sink'}{again}")
        with self._folder() as folder, self.copied(definition.name, self.live, folder) as copy:
            steps.holds(copy.blocks())
            saved = copy.saved()
            if saved is None:
                raise UsageError(
                    f"job {definition.name!r} has committed nothing yet: there is nothing to compare",
                    command(f"status {definition.name}"),
                )
            at = saved.checkpoint
            tables = [one for one in tables_at(definition, at) if one.name in (asked.tables or (one.name,))]
            memory = None if isinstance(expected, CurrentRows) else self._memory(at, copy)
            known = {} if memory is None else memory.equal(tables)
            weights = {table.name: _weight(table.name, at) for table in tables}
            asks = self._asks(saved)
            steps.expect([*(weight for name, weight in weights.items() if name not in known), *asks.values()])
            rows = expected.beside(copy) if isinstance(expected, CurrentRows | Expected) else expected
            verdicts = []
            for table in tables:
                if table.name in known:
                    verdicts.append(known[table.name][0])
                    continue
                steps.table(weights[table.name])
                compared = self.comparing(
                    self.resources.spark, rows(table, at), copy, table, ROWS_NAMED, asked.sample, steps
                )
                verdicts.append(compared.verdict)
                if memory is not None:
                    memory.note(compared.verdict)
                if take is not None and not compared.verdict.equal:
                    with steps.work(f"writing the rows that make table {table.target} equal", further=True):
                        take(table, compared.changes())
            verdicts += self._derived(copy, saved, asks)
        report = VerifyReport(
            definition.name,
            at.epoch,
            tuple(verdicts),
            time.monotonic() - began_s,
            converging(definition, at),
            sample=asked.sample,
            left_out=tuple(name for name in definition.names if asked.tables and name not in asked.tables),
            live=self.live,
            recalled={name: at_ms for name, (_, at_ms) in known.items()},
            keys=asked.part.keys,
        )
        return replace(report, fixable=why_not(definition, at, to_fix(report)) is None)

    def _asks(self, saved: SavedJob) -> Mapping[str, float]:
        """By derived table that is compared, what its SELECT weighs."""
        if not self.definition.derived:
            return {}
        derives, wanted = self.resources.sink.extras.derives, self.asked.tables
        assert derives is not None, "a job with derived tables has been checked"
        job, at = decode(JobDefinition, saved.definition), saved.checkpoint
        tables = (*tables_at(job, at), *job.beside)
        asks = select_weights(
            derives.reads(self.definition.derived, tables), {one.name: _weight(one.name, at) for one in tables}
        )
        return {name: weight for name, weight in asks.items() if not wanted or name in wanted}

    def _derived(self, copy: SinkCopy, saved: SavedJob, asks: Mapping[str, float]) -> Iterator[TableVerdict]:
        """Each derived table beside its SELECT, by the sink's own engine, over the same copy: of all tables, also
        those that are set aside or being put back.
        """
        others, wanted = self.definition.derived, self.asked.tables
        if not others:
            return
        job = decode(JobDefinition, saved.definition)
        tables = (*tables_at(job, saved.checkpoint), *job.beside)
        for one in others:
            if wanted and one.name not in wanted:
                continue
            self.steps.table(asks[one.name])
            with self.steps.work(f"comparing {one.name} with its SELECT"):
                found = copy.compare(one, others, tables, ROWS_NAMED)
            if not found.compared or (not found.filled and saved.checkpoint.phase is Phase.SNAPSHOT):
                yield TableVerdict(one.name, one.target, True, 0, 0, derived=True, filled=False)
                continue
            equal = not (found.missing or found.extra or found.changed or found.gone)
            yield TableVerdict(
                *(one.name, one.target, equal, found.rows, found.held),
                rows=found.different,
                missing=found.missing,
                extra=found.extra,
                changed=found.changed,
                derived=True,
                gone=found.gone,
            )

    def _memory(self, at: Checkpoint, copy: SinkCopy) -> Memory | None:
        """The memory for exactly this comparison; None if the sink cannot tell whether it was written to."""
        mark = None if self.catalog is None or not self.asked.part.whole else copy.mark()
        if self.catalog is None or mark is None:
            return None
        asked = [list(self.asked.tables), self.asked.sample, self.independent]
        told = [__version__, encode(self.definition), encode(at), *asked, mark]
        basis = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        return Memory(self.catalog, self.definition.name, basis)


def select_weights(reads: Mapping[str, Sequence[str]], weights: Mapping[str, float]) -> dict[str, float]:
    """By derived table, the weights of all tables that its SELECT reads. reads: each after those that it reads."""
    found = dict(weights)
    for name, read in reads.items():
        found[name] = sum(found[one] for one in read)
    return {name: found[name] for name in reads}


def tables_at(definition: JobDefinition, at: Checkpoint) -> Sequence[SinkTable]:
    """The job's tables with the columns that they have at a checkpoint."""
    return [replace(t, schema=at.sink_schemas.get(t.name, t.schema)) for t in definition.tables]


def _weight(table: str, at: Checkpoint) -> float:
    """About how much work a pass over a table is: the rows that were read for it."""
    return 1.0 + sum(progress.rows for (of, _), progress in at.splits.items() if of == table)
