"""Whether a config leads to the same result as the one that a job was created from."""

import json
import os
import shlex

from backfill_cli.config import JobConfig, from_stored
from backfill_cli.config.effective import differences, moved
from backfill_cli.contracts import JobDefinition, Source
from backfill_cli.engine.job.select import choose
from backfill_cli.engine.spool.folder import holds_entries, owned
from backfill_cli.errors import START_OVER, UsageError, command, in_config, start_over

_HOW_WRITTEN = (
    *(
        f"upstream.{side}{option}"
        for side in ("changes.", "changes.value.", "value.")
        for option in ("decimals", "timestamps")
    ),
    "upstream.changes.file_format",
    *(f"upstream.changes.csv.{option}" for option in ("header", "quote", "escape", "multi_line")),
)


def require_same(job: JobDefinition, config: JobConfig, has_read_changes: bool = True, known: bool = True) -> None:
    """The config leads to the same result as the job's own, and its spool is where the config says.

    has_read_changes: some change was decoded with the job's own config; until then, how changes are written may be
    corrected. known: the catalog has the job, not the sink alone. Raises UsageError with every difference.
    """
    name, before = job.name, from_stored(job.config)
    had = before.fingerprint()
    if holds_entries(before.spool.path, name) and not owned(config.spool.path, name):
        raise UsageError(
            f"job {name!r}: spool.path is now {config.spool.path}, but the spool is in {before.spool.path}",
            in_config(f"move {before.spool.path}/{name} to {config.spool.path}/{name}, or set spool.path back"),
        )
    found = differences(had, config.fingerprint())
    found = [one for one in found if not _says_how_written(one, ": nothing → " if has_read_changes else ": ")]
    if found:
        raise _different(name, found, moved(had, config.fingerprint()), known)


def _different(name: str, found: list[str], folder: tuple[str, str] | None, known: bool) -> UsageError:
    """The error for a config that leads to another result. folder: that was moved perhaps, and its new path."""
    over = START_OVER if known else start_over(name, "--sink job.toml", "--with-rows")
    hint = (
        "undo these changes (only throttle, barrier, catch_up, retry, spool, spark, hooks, staging, live, "
        "and what a hint asked you to add may change), or name another job, or " + over
    )
    if folder is not None and os.path.isdir(folder[1]) and not os.path.lexists(folder[0]):
        forget = (
            "forget the job here: "
            + command(f"drop {name} --without-sink --confirm {name}")
            + "; start then names the command that drops its rows"
        )
        back = shlex.join(["mv", folder[1], folder[0]])
        hint = f"{folder[0]} is gone: if it was moved here, move it back: {back}; or " + (
            forget if known else over
        )
    return UsageError(
        f"job {name!r} exists, and this config would produce a different result. These options differ:\n  "
        + "\n  ".join(found),
        hint,
    )


def _says_how_written(difference: str, told: str) -> bool:
    """Whether it concerns how changes are written. told: `: nothing → ` accepts only options that were not set."""
    return difference.startswith(tuple(f"{option}{told}" for option in _HOW_WRITTEN))


def require_same_strategy(job: JobDefinition, config: JobConfig, upstream: Source) -> None:
    """The config leads to the job's own strategy. Raises UsageError if it leads to another."""
    asked = choose(config.job.strategy, upstream.capabilities).strategy
    if asked != job.strategy:
        raise UsageError(
            f"job {job.name!r} exists with strategy {job.strategy!r}, but this config leads to {asked!r}",
            f'set job.strategy = "{job.strategy}" again, or name another job, or ' + START_OVER,
        )


def changed_keys(stored: str, config: JobConfig) -> list[str]:
    """The keys of the config that differ from the stored one, without values: they can be long or confidential."""
    return [told.partition(": ")[0] for told in differences(json.loads(stored), json.loads(config.stored()))]
