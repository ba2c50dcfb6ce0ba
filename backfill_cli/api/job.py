"""`Job`: what the commands do, from Python. Each method returns what its command prints with `--json`."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from backfill_cli.api import changing, refilling
from backfill_cli.api.background import start_detached
from backfill_cli.api.moved import refuse_moved
from backfill_cli.api.posting import post, throttle
from backfill_cli.api.running import Telling, run_job
from backfill_cli.api.waiting import Goal, wait
from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.catalog.places import here_or_above, of_config
from backfill_cli.errors import UsageError, command
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import JobState, Verb
from backfill_cli.model.reports import PlanReport
from backfill_cli.model.verify import Asked, VerifyProgress, VerifyReport
from backfill_cli.view.answers import Detached, Posted, Reached
from backfill_cli.view.model import ENDED, JobView, Refilled, read_jobs, refill_view
from backfill_cli.view.running import Ran, Viewer

if TYPE_CHECKING:
    from backfill_cli.config import JobConfig
    from backfill_cli.config.sections import Hooks

Until = Literal["caught-up", "forever"]
Lines = Callable[[str], None]
"""Takes a line of progress."""
CATALOG = "BACKFILL_CATALOG"


def _silent(_line: str) -> None:
    pass


class Job:
    """A job, by its name in a catalog; `from_toml` for one that is to be started.

    catalog: the file; None for that of BACKFILL_CATALOG, else `.backfill/catalog.duckdb`, beside the config of
    `from_toml`, or in this folder or one above.
    Methods raise the errors of `backfill_cli.errors`, whose `hint` is what to do next. A `wait_s` is how long to
    wait until a command has taken effect; None: not at all, and the answer's `epoch` may be None.
    """

    def __init__(self, name: str, catalog: str | Path | None = None) -> None:
        self.name = name
        self._catalog = Catalog(Path(catalog or os.environ.get(CATALOG) or here_or_above()))
        self._config: JobConfig | None = None

    @classmethod
    def from_toml(cls, file: str | Path, catalog: str | Path | None = None) -> "Job":
        """The job of a config file. Raises ConfigError with all its faults; UsageError for a job that an earlier
        version created in the current folder's catalog.
        """
        from backfill_cli.config import load

        typed = str(catalog or os.environ.get(CATALOG) or "")
        store = Path(typed or of_config(Path(file)))
        config = load(Path(file), of_job=Catalog(store).sections)
        job = cls(config.job.name, store)
        refuse_moved(job.name, Path(file), job._catalog, typed)
        job._config = config
        return job

    def __repr__(self) -> str:
        return f"Job({self.name!r}, catalog={str(self._catalog.path)!r})"

    def plan(self, *, into_existing: bool = False) -> PlanReport:
        """What a start would do, from metadata and a sample; `refused` says what it would refuse."""
        from backfill_cli.engine.job.checks import plan

        return plan(self._of_config("plan"), self._catalog, into_existing)

    @overload
    def start(
        self,
        until: Until = ...,
        *,
        into_existing: bool = ...,
        detach: Literal[False] = ...,
        say: Lines = ...,
    ) -> Ran: ...
    @overload
    def start(self, until: Until = ..., *, into_existing: bool = ..., detach: Literal[True]) -> Detached: ...
    def start(
        self,
        until: Until = "forever",
        *,
        into_existing: bool = False,
        detach: bool = False,
        say: Lines = _silent,
    ) -> Ran | Detached:
        """Create the job, or continue it, and run it to its end in this process; with `detach` in another one.

        say: takes the lines of progress, which the job's log has, too. Ctrl-C commits the current epoch, then
        raises KeyboardInterrupt; a second one ends the process at once. Raises StoppedEarly if it was stopped
        before it was caught up.
        """
        config = self._of_config("start")
        if detach:
            words = ["start", "--config", config.file, "--until", until]
            return start_detached(
                self.name, self._catalog, [*words, *(["--into-existing"] if into_existing else [])]
            )
        from backfill_cli.engine.loop.run import start

        return self._run(
            config.hooks, lambda viewer: start(config, self._catalog, until, into_existing, viewer), say
        )

    @overload
    def resume(
        self,
        until: Until | None = ...,
        *,
        detach: Literal[False] = ...,
        wait_s: float | None = ...,
        say: Lines = ...,
    ) -> Posted | Ran: ...
    @overload
    def resume(
        self, until: Until | None = ..., *, detach: Literal[True], wait_s: float | None = ...
    ) -> Posted | Detached: ...
    def resume(
        self,
        until: Until | None = None,
        *,
        detach: bool = False,
        wait_s: float | None = None,
        say: Lines = _silent,
    ) -> Posted | Ran | Detached:
        """End a running job's pause; or run a job without a runner from its last checkpoint, as `start` does.

        until: of this run and later ones; None: as recorded. Raises UsageError for one that a live runner has not.
        """
        row = self._catalog.job(self.name)
        if row.live:
            if until is not None:
                raise UsageError(
                    f"job {self.name!r} has a runner already, whose options cannot change: until",
                    "leave that out, or stop the runner first: " + command(f"stop {self.name}"),
                )
            return post(self._catalog, row, Verb.RESUME, None, wait_s)
        if detach:
            words = ["resume", self.name, *(() if until is None else ("--until", until))]
            return start_detached(self.name, self._catalog, words, wait_s)
        from backfill_cli.config import stored_hooks
        from backfill_cli.engine.loop.run import resume

        hooks = stored_hooks(self._catalog.definition(self.name).config)
        return self._run(hooks, lambda viewer: resume(self.name, self._catalog, None, until, viewer), say)

    def status(self) -> JobView:
        """What the job is doing, how far it is, what limits it."""
        return read_jobs(self._catalog, self.name)[0]

    def watch(self, every_s: float = 1.0) -> Iterator[JobView]:
        """`status`, again and again; the last one is that of the job's end."""
        while True:
            view = self.status()
            yield view
            if view.state in ENDED:
                return
            time.sleep(every_s)

    def history(self, last: int = 20) -> Sequence[EpochRecord]:
        """The newest epochs, oldest first: commits, and barriers that took a command."""
        return self._catalog.ledger(self.name, last)

    def pause(self, *, wait_s: float | None = None) -> Posted:
        """Nothing is read for the sink from the next barrier on, until `resume`."""
        return self._post(Verb.PAUSE, None, wait_s)

    def throttle(self, rate: float | None, *, table: str | None = None, wait_s: float | None = None) -> Posted:
        """The snapshot, or a topic's history, is read at this many rows per second; None for no limit.

        table: whose own rate it is; None: that of all tables together.
        """
        return throttle(self._catalog, self._catalog.job(self.name), rate, table, wait_s)

    def set(self, config: str | Path | None = None, *, wait_s: float | None = None) -> Posted:
        """What may change in the job's config acts at its next barrier. Raises UsageError for anything else.

        config: its file; None: that of `from_toml`, else that of the last start.
        """
        row = self._catalog.job(self.name)
        if (file := self._file(config, row)) is None:
            said = f"job {self.name!r}: it is not known which config it has"
            raise UsageError(said, "name it: " + command(f"set {self.name} --config job.toml"))
        return changing.setting(self._catalog, row, file).post(self._catalog, row, wait_s)

    def add(
        self,
        table: str,
        config: str | Path | None = None,
        *,
        into_existing: bool = False,
        wait_s: float | None = None,
    ) -> Posted:
        """A table joins the job, which reads it while it follows the others. config: as of `set`; may have it."""
        row = self._catalog.job(self.name)
        file = self._file(config, row)
        asked = changing.adding(self._catalog, row, table, file, into_existing)
        return asked.post(self._catalog, row, wait_s)

    def add_derived(
        self,
        derived: str | Sequence[str],
        config: str | Path | None = None,
        *,
        replace: bool = False,
        into_existing: bool = False,
        wait_s: float | None = None,
    ) -> Posted:
        """Derived tables join the job, whose next commit fills all of them. config: as of `set`, which has them.

        replace: those that the job has are replaced by these. into_existing: so is what their tables have.
        """
        row = self._catalog.job(self.name)
        if (file := self._file(config, row)) is None:
            said = f"job {self.name!r}: it is not known which config it has"
            raise UsageError(said, "name it: " + command(f"add {self.name} --derived NAME --config job.toml"))
        asked = changing.adding_derived(self._catalog, row, _listed(derived), file, replace, into_existing)
        return asked.post(self._catalog, row, wait_s)

    def remove_derived(
        self,
        derived: str | Sequence[str],
        *,
        with_rows: bool = False,
        confirm: str | None = None,
        wait_s: float | None = None,
    ) -> Posted:
        """Derived tables leave the job in one commit, and stay as they are. with_rows, confirm: as of `remove`."""
        row = self._catalog.job(self.name)
        asked = changing.removing_derived(self._catalog, row, _listed(derived), with_rows, confirm)
        return asked.post(self._catalog, row, wait_s)

    def remove(
        self,
        table: str,
        *,
        with_rows: bool = False,
        confirm: str | None = None,
        wait_s: float | None = None,
    ) -> Posted:
        """A table leaves the job. with_rows: its table in the sink is dropped; confirm: the job's name again."""
        row = self._catalog.job(self.name)
        asked = changing.removing(self._catalog, row, table, with_rows, confirm)
        return asked.post(self._catalog, row, wait_s)

    def refill(
        self,
        table: str | None = None,
        *,
        where: str | None = None,
        between: str | None = None,
        wait_s: float | None = None,
    ) -> Refilled:
        """A table, or a part of it, is read again, and the sink made equal to it, while the job goes on.

        table: can be left out of a job of one. where: a condition. between: `A..B`, of the first key column.
        Raises UsageError for what cannot be refilled; with `wait_s` what made it fail, StoppedEarly, WaitTimedOut.
        """
        row = self._catalog.job(self.name)
        asked, posted = refilling.refill(self._catalog, row, table, where, between)
        if wait_s is not None:
            asked = refilling.wait(self._catalog, self.name, asked, wait_s)
        return Refilled(self.name, posted, refill_view(asked, replace(row, progress=None)))

    def cancel_refill(self, table: str | None = None) -> Refilled:
        """The pending refill of a table ends at the next barrier. Raises UsageError if there is none."""
        row = self._catalog.job(self.name)
        asked, posted = refilling.cancel(self._catalog, row, table)
        return Refilled(self.name, posted, refill_view(asked, replace(row, progress=None)))

    def stop(self, *, wait_s: float | None = None) -> Posted:
        """The runner ends once the current epoch has committed."""
        return self._post(Verb.STOP, None, wait_s)

    def wait(self, goal: Goal = "caught-up", *, timeout_s: float = 1800.0) -> Reached:
        """The job is caught up (all that the upstream has now is in the sink), paused, stopped or done.

        Raises Fatal if it failed, StoppedEarly if it stopped, or lost its runner, first; WaitTimedOut.
        """
        return wait(self._catalog, self._catalog.listed_job(self.name), goal, timeout_s)

    def verify(
        self,
        tables: Sequence[str] = (),
        *,
        between: str | None = None,
        sample: float | None = None,
        independent: bool = False,
        progress: Callable[[VerifyProgress], None] = lambda _: None,
    ) -> VerifyReport:
        """Upstream and sink compared at one checkpoint; `equal` says whether they are, and nothing is raised.

        tables: names; empty for all. between: `A..B`, of one table's first key column, without what follows.
        sample: the share of the keys, 0 to 1; None for all.
        """
        from backfill_cli.engine.verify.job import verify

        asked = Asked(tuple(tables), sample)
        if between is not None:
            if independent or sample is not None:
                other = "independent" if independent else "sample"
                raise UsageError(f"between and {other} cannot be used together", f"leave {other} out")
            asked = refilling.compared(self._catalog, self._catalog.job(self.name), asked.tables, between)
        return verify(self.name, self._catalog, independent, asked, progress, False)

    def _file(self, config: str | Path | None, row: JobRow) -> Path | None:
        """The config's file: as given, of `from_toml`, or, if it is there, of the last start."""
        if config is None and self._config is not None:
            config = self._config.file
        if config is not None:
            return Path(config)
        return Path(row.config_file) if row.config_file and Path(row.config_file).is_file() else None

    def _of_config(self, method: str) -> "JobConfig":
        if self._config is None:
            raise UsageError(f"{method} needs the config of job {self.name!r}", "use Job.from_toml(FILE)")
        return self._config

    def _post(self, verb: Verb, rate: float | None, wait_s: float | None) -> Posted:
        return post(self._catalog, self._catalog.job(self.name), verb, rate, wait_s)

    def _run(self, hooks: "Hooks", run: Callable[[Viewer], JobState], say: Lines) -> Ran:
        try:
            ended = run_job(self.name, self._catalog, Telling(say=say), hooks, run)
        except SystemExit as signalled:
            if signalled.code == 130:
                raise KeyboardInterrupt from None
            raise
        return Ran(read_jobs(self._catalog, self.name), ended)


def _listed(derived: str | Sequence[str]) -> Sequence[str]:
    """Each name once, in their order."""
    return (derived,) if isinstance(derived, str) else tuple(dict.fromkeys(derived))
