"""What `set` puts into a job's inbox: checked as a start checks it, so that its barrier need not refuse it."""

from collections.abc import Sequence

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.job.select import changed_keys, require_same, require_same_strategy
from backfill_cli.errors import UsageError, command
from backfill_cli.model.change import Change
from backfill_cli.model.job import Verb

OF_A_PROCESS = ("spark", "hooks")
"""Sections of the config that a run reads as it begins."""


def setting(name: str, config: JobConfig, catalog: Catalog) -> Change:
    """The change to this config. Raises UsageError for one that would give another result, or of another job."""
    require_of_job(name, config, Verb.SET)
    job = catalog.definition(name)
    require_same(job, config, lambda: catalog.change_logs.has_been_read(name))
    with Resources(config) as resources:
        require_same_strategy(job, config, resources.upstream)
    return Change(config.stored(), config.file, keys=tuple(changed_keys(job.config, config)))


def require_of_job(name: str, config: JobConfig, verb: Verb) -> None:
    """Raises UsageError for the config of another job."""
    if config.job.name != name:
        raise UsageError(
            f"{config.file} is the config of job {config.job.name!r}, not of job {name!r}",
            command(f"{verb} {config.job.name} --config {config.file}"),
        )


def of_next_run(keys: Sequence[str]) -> list[str]:
    """The keys that act only once another process runs the job."""
    return [key for key in keys if key.partition(".")[0] in OF_A_PROCESS]
