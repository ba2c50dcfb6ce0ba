"""A job's derived tables, which its sink keeps: what they need, what depends on them."""

from collections.abc import Sequence
from shlex import quote

from backfill_cli.config import JobConfig
from backfill_cli.contracts import Derives, JobDefinition, Sink, SinkTable
from backfill_cli.engine.job.resources import Resources
from backfill_cli.errors import UsageError, command, in_config
from backfill_cli.model.reports import PlannedDerived


def derives_of(config: JobConfig, sink: Sink) -> Derives:
    """What keeps them. Raises UsageError for a sink that cannot."""
    derives = sink.extras.derives
    if derives is None:
        kind = config.tree["sink"]["type"]
        raise UsageError(
            f"derived table {config.derived[0].name!r}: the sink {kind} cannot keep it: it needs one whose tables "
            "commit in one transaction",
            in_config('use sink.type "duckdb" or "postgres", or leave [[derived]] out'),
        )
    return derives


def planned_derived(config: JobConfig, sink: Sink, tables: Sequence[SinkTable]) -> tuple[PlannedDerived, ...]:
    """What `plan` tells of them. Raises what `prepare_derived` would; creates nothing."""
    if not config.derived:
        return ()
    lives = {one.name: one.live for one in config.tables if one.live is not None}
    return derives_of(config, sink).check(config.job.name, [one.value for one in config.derived], tables, lives)


def prepare_derived(job: JobDefinition, resources: Resources) -> None:
    """They exist in the sink, which has the job's tables."""
    derived = job.derived
    if derived:
        derives, tables = derives_of(resources.config, resources.sink), (*job.tables, *job.beside)
        resources.with_retries(lambda: derives.prepare(job.name, derived, tables))


def require_unread(job: JobDefinition, config: JobConfig, table: str) -> None:
    """No derived table reads this one. Raises UsageError naming one."""
    if not job.derived:
        return
    reads = derives_of(config, config.open_sink()).reads(job.derived, (*job.tables, *job.beside))
    for name, tables in reads.items():
        if table in tables:
            raise UsageError(
                f"table {table!r} cannot leave job {job.name!r}: its derived table {name!r} reads it",
                "start over without either: " + command(f"drop {job.name} --confirm {quote(job.name)}"),
            )
