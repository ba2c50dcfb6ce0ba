"""`backfill verify`: upstream and sink at one checkpoint, table by table. Reads only; holds up no runner."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.contracts import JobDefinition, SinkTable, TakingUpstream, VerifiableSink
from backfill_cli.engine.verify.folder import folder_of
from backfill_cli.engine.verify.table import compare
from backfill_cli.errors import BackfillError, Transient, UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.position import Position
from backfill_cli.model.verify import VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.catalog import Catalog
    from backfill_cli.engine.verify.current import CurrentRows

ROWS_NAMED = 20

Rows = Callable[[SinkTable, Checkpoint], "DataFrame"]
"""f(upstream at the checkpoint) of one table: the sink's columns, unique by key."""


def verify(job: str, catalog: "Catalog", independent: bool = False) -> VerifyReport:
    """Compare a job's upstream and sink at the sink's last checkpoint, in a Spark session of its own.

    independent: DuckDB reads the upstream instead of our readers (see independent.py for what it refuses).

    Raises UsageError for a sink that cannot be read back or holds nothing yet, and what the connectors raise.
    """
    from backfill_cli.config import from_stored
    from backfill_cli.engine.job.resources import Resources
    from backfill_cli.engine.verify.current import CurrentRows
    from backfill_cli.engine.verify.expected import Expected
    from backfill_cli.engine.verify.independent import IndependentRows

    definition = catalog.definition(job)
    config = from_stored(definition.config)
    live = catalog.job(job).live
    if definition.strategy == "chain" and catalog.holds_spool(job):
        run = "" if live else f"backfill resume {job} --detach; "
        raise Transient(
            f"job {job!r}: its spool holds changes that are not applied yet, and the upstream has let go of them: "
            "there is nothing to compare with until they are",
            f"{run}backfill wait {job} --for caught-up; backfill pause {job} --all --wait; backfill verify {job}; "
            f"backfill resume {job}",
        )
    with Resources(config) as resources:
        sink = resources.sink
        if not isinstance(sink, VerifiableSink):
            kind = config.tree["sink"]["type"]
            raise UsageError(f"the sink of job {job!r} ({kind}) cannot be read back, so not verified")
        upstream, spark = resources.upstream, resources.spark
        upstream.restore(definition.pin)
        staging = Path(config.job.staging)
        rows = Expected(spark, upstream, config, definition.pin)

        def compared() -> VerifyReport:
            try:
                if not independent and isinstance(upstream, TakingUpstream):
                    with folder_of(staging / job) as folder:
                        now = CurrentRows(spark, upstream, config, folder, live)
                        report = verify_against(spark, definition, sink, live, staging, now)
                    return replace(report, not_compared=now.not_compared)
                if not independent:
                    return verify_against(spark, definition, sink, live, staging, rows)
                with folder_of(staging / job) as folder:
                    read = IndependentRows(spark, upstream, config, definition.pin, folder)
                    report = verify_against(spark, definition, sink, live, staging, read)
                return replace(report, independent=True)
            except BackfillError:
                raise
            except Exception as exc:
                if rows.again_checked(exc):
                    raise Transient("some records have to take the checked path") from exc
                failure = upstream.failure(exc)
                if failure is None:
                    raise
                raise failure from exc

        return _once_more(compared)


def _once_more(compared: Callable[[], VerifyReport]) -> VerifyReport:
    """A second try for what fails in passing: a reader that asks to read again, a commit in the way."""
    import tenacity

    passing = tenacity.retry_if_exception_type(Transient)
    return tenacity.Retrying(retry=passing, stop=tenacity.stop_after_attempt(2), reraise=True)(compared)


def verify_against(
    spark: "SparkSession",
    definition: JobDefinition,
    sink: VerifiableSink,
    live: bool,
    staging: Path,
    expected: "Rows | CurrentRows",
) -> VerifyReport:
    """Compare the sink, as it is between two commits, with what the upstream says at the checkpoint it holds.

    The checkpoint is read from the same copy as the rows, so that they belong together while the job goes on.
    live: a runner has the job. staging: where both Spark and the sink may write; left as it was.
    Raises UsageError when the sink holds nothing of the job yet.
    """
    began_s = time.monotonic()
    with folder_of(staging / definition.name) as folder, sink.copied(definition.name, live, folder) as copy:
        saved = copy.saved()
        if saved is None:
            raise UsageError(
                f"job {definition.name!r} has committed nothing yet: there is nothing to compare",
                f"backfill status {definition.name}",
            )
        at = saved.checkpoint
        tables = [replace(t, schema=at.sink_schemas.get(t.name, t.schema)) for t in definition.tables]
        rows = expected if callable(expected) else expected.beside(copy)
        verdicts = tuple(compare(spark, rows(table, at), copy, table, ROWS_NAMED) for table in tables)
    converging = _converging(definition, at)
    return VerifyReport(definition.name, at.epoch, verdicts, time.monotonic() - began_s, converging)


def _converging(definition: JobDefinition, at: Checkpoint) -> bool:
    """Whether changes are still to come that the snapshot shows: of a fuzzy load, or of rows read as they were."""
    state = json.loads(at.state)
    if state.get("uncovered"):
        return True
    learnt = state.get("complete_at")
    complete_at = definition.pin.complete_at if learnt is None else Position.of(learnt)
    return complete_at is not None and not complete_at <= at.position
