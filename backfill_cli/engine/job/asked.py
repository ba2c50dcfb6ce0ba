"""What config a job has once the commands that wait to redefine it are taken: the next run follows them."""

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, from_stored
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.derived import changed_config
from backfill_cli.engine.job.select import present, require_as_now, require_same, staying
from backfill_cli.errors import BackfillError
from backfill_cli.model.change import Change
from backfill_cli.model.job import Verb


def config_after(job: JobDefinition, change: Change) -> JobConfig:
    """The job's config once a table, or derived ones, have joined or left it. Raises what refuses that.

    They join or leave the config of now, not the one that the command saw.
    """
    if change.derived:
        return changed_config(job, change)
    now = from_stored(job.config)
    if change.config:
        return now.with_table(json.loads(change.config), json.loads(change.options))
    return now.of_tables({one.name for one in now.tables} - {change.table})


def _require_as_asked(job: JobDefinition, config: JobConfig, catalog: Catalog, live: bool) -> JobDefinition:
    """As `require_as_now`, of the job once each `add` and `remove` that waits is taken; returns it.

    Raises UsageError for another config, also for one without what is to join: the next run would be refused.
    """
    waiting = [one for one in catalog.job(job.name).waiting if one.verb in (Verb.ADD, Verb.REMOVE)]
    if not waiting:
        require_as_now(job, config, catalog, live)
        return job
    asked = job
    for one in waiting:
        change = Change.read(one.payload)
        with suppress(BackfillError):  # its barrier refuses it, too
            if change.derived and not change.config:  # what these read may join by a command before
                after = from_stored(asked.config).without_derived(change.derived)
            else:
                after = config_after(asked, change)
            asked = replace(asked, config=after.stored())
    has_been_read = partial(catalog.change_logs.has_been_read, job.name)
    require_same(asked, config, has_been_read, left=lambda: staying([*catalog.redefined(job.name), *waiting]))
    return asked


def before_waiting(job: JobDefinition, config: JobConfig, catalog: Catalog, live: bool) -> JobConfig:
    """The config with the tables, and derived ones, that the job has before it takes the commands that wait.

    live: another runner has it. Raises UsageError for a config that is not the job's once they are taken.
    """
    asked = _require_as_asked(job, present(job, config), catalog, live)
    if asked is job:
        return config
    had, has = from_stored(job.config), from_stored(asked.config)
    before, after = ({one["name"]: one for one in of.tree["tables"]} for of in (had, has))
    for name in before.keys() - after.keys():
        config = config.with_table(before[name], had.options_by_table(name))
    config = config.of_tables({one.name for one in config.tables} - (after.keys() - before.keys()))
    return config.without_derived([one.name for one in config.derived]).with_derived(*had.tree.get("derived", ()))
