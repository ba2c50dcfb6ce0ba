"""A job that a command runs: shown in the foreground while it runs, or started in the background."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from backfill_cli.api.background import start_detached
from backfill_cli.api.running import Telling, run_job
from backfill_cli.catalog import Catalog
from backfill_cli.errors import BadData, UsageError
from backfill_cli.model.job import JobState
from backfill_cli.view.console import answer_json, interactive, say
from backfill_cli.view.journal import EVERY_S
from backfill_cli.view.model import look_at, read_jobs, spell_quarantined
from backfill_cli.view.running import Ran, Viewer
from backfill_cli.view.waiting import waiting

from ._options import limits_typed, seconds

if TYPE_CHECKING:
    from backfill_cli.config.sections import Hooks


@dataclass(frozen=True, slots=True)
class Typed:
    """The options of `start` and `resume` that say how a run is reported. every_s: between progress lines."""

    metrics_file: str | None
    metrics_port: str | None
    every_s: float
    quiet: bool
    fail_on_quarantine: bool
    as_json: bool

    @property
    def words(self) -> list[str]:
        """As command line arguments for a run in the background, whose log has every line."""
        return [
            *(() if self.metrics_file is None else ("--metrics-file", str(Path(self.metrics_file).resolve()))),
            *(() if self.metrics_port is None else ("--metrics-port", self.metrics_port)),
            *(("--progress-interval", f"{self.every_s:g}") if self.every_s != EVERY_S else ()),
            *(("--fail-on-quarantine",) if self.fail_on_quarantine else ()),
        ]


def telling(
    metrics_file: str | None,
    metrics_port: str | None,
    progress_interval: str | None,
    quiet: bool,
    fail_on_quarantine: bool,
    as_json: bool,
) -> Typed:
    """From the command line. Raises UsageError if the interval is not a duration, or too short."""
    every_s = EVERY_S if progress_interval is None else seconds(progress_interval, "--progress-interval")
    if every_s < 1:
        raise UsageError(f"--progress-interval {progress_interval}: less than a second", "--progress-interval 1m")
    return Typed(metrics_file, metrics_port, every_s, quiet, fail_on_quarantine, as_json)


def run_shown(
    ctx: typer.Context,
    name: str,
    catalog: Catalog,
    typed: Typed,
    hooks: "Hooks",
    run: Callable[[Viewer], JobState],
    *,
    rebuilt: bool = False,
) -> None:
    """Run a job to its end and report it; an error that ends the run passes through.

    ctx: that of the verb. rebuilt: the run begins by rebuilding the catalog, whatever it holds of the job. Raises
    BadData for quarantined rows, with --fail-on-quarantine.
    """
    drawn = interactive(sys.stderr) and not typed.quiet
    told = Telling(
        typed.every_s,
        say,
        typed.quiet,
        typed.metrics_file,
        typed.metrics_port,
        (lambda: limits_typed(read_jobs(catalog, name), ctx)) if drawn else None,
    )
    ended = run_job(name, catalog, told, hooks, run, rebuilt=rebuilt)
    if typed.as_json:
        answer_json(Ran(limits_typed(read_jobs(catalog, name), ctx), ended))
    quarantined = ended.all_runs.quarantined
    if typed.fail_on_quarantine and quarantined:
        error = BadData(
            f"job {name!r}: quarantined {spell_quarantined(quarantined)}: they could not be read",
            "look at them in the sink: " + look_at(quarantined),
        )
        error.answered = typed.as_json
        raise error


def run_detached(
    job: str, catalog: Catalog, words: Sequence[str], as_json: bool, barrier_within_s: float | None = None
) -> None:
    """As `start_detached`, reported; the output of a runner that failed at once is on stderr."""
    said: list[str] = []
    try:
        with waiting(f"waiting until job {job} has started in the background"):
            started = start_detached(job, catalog, words, barrier_within_s, said.append)
    finally:
        for text in said:
            say(text)
    if as_json:
        answer_json(started)
    else:
        after = "" if barrier_within_s is None else ", past its first commit"
        say(f"job {job}: started in the background, pid {started.pid}{after}, log {started.log}")
