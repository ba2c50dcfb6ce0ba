"""`backfill doctor`: checks what a job needs before it runs. Changes nothing; starts Spark only to check a job.

This machine is looked at by `engine/job/machine.py`; here, the place of the catalog (files, locks, space, clocks,
what dead runners left), and what a job needs beyond that: its plan, space for staging, other systems' clocks.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from shlex import quote

from backfill_cli.catalog import Catalog, JobRow, wall_clock_ms
from backfill_cli.catalog.files import refuse_unsafe
from backfill_cli.catalog.lease import runs_at
from backfill_cli.config import JobConfig, load
from backfill_cli.engine.job import machine
from backfill_cli.engine.job.checks import plan
from backfill_cli.engine.job.held import spell_pending_start
from backfill_cli.errors import BackfillError, Hint, HistoryGone, command, shell
from backfill_cli.model.job import JobState
from backfill_cli.model.reports import Check, PlanReport, Status, failed, ok, refused, warning
from backfill_cli.model.units import spell_duration, spell_moment, spell_size

LITTLE_BYTES = 1 << 30
"""A catalog takes megabytes, and staging two epochs of seconds each: less than this may not be enough."""

CLOCKS_APART_MS = 2_000
"""File systems store times with a resolution of up to 2 s."""

APART_MS = 1_000
"""A lag is shown in tenths of a second, and a barrier's interval is a second: a smaller offset misleads nobody."""

ELSEWHERE = "use a file on a local disk: --catalog FILE"


def examine(file: Path | None, catalog: Catalog, env: Mapping[str, str]) -> Iterator[Check]:
    """Checks the machine, the catalog's place and, if a config is named, its job; yields each check when done.

    With a config it connects to what that names, as `plan` does; if an upstream or sink cannot be reached, its
    check reports that, and the others are still made.
    """
    config: JobConfig | None = None
    fault: BackfillError | None = None
    if file is not None:
        try:
            config = load(file, of_job=catalog.sections)
        except BackfillError as error:
            fault = error
    unfit = False
    for check in machine.checks(env, frozenset() if config is None else machine.extras(config)):
        unfit = unfit or check.status is Status.FAILED
        yield check
    for check in of_place(catalog, None if config is None else config.job.name):
        # a plan would upgrade the catalog to this version
        unfit = unfit or (check.name == "jobs" and check.status is Status.FAILED)
        yield check
    if fault is not None:
        yield refused("config", fault)
    if config is None:
        return
    yield _described(config)
    if unfit:
        yield warning("plan", "not checked, because of the failures above", "correct those first")
        return
    yield from _of_job(config, catalog)


def of_place(catalog: Catalog, job: str | None) -> Iterator[Check]:
    """Leaves nothing behind: the probe file is removed. job: that of the config, None without one."""
    path = catalog.path
    there = nearest(path.parent)
    try:
        handle, probe = tempfile.mkstemp(prefix=".backfill-doctor-", dir=there)
    except OSError as error:
        fix = shell(f"chmod u+wx {quote(str(there))}") + ", or use another file: --catalog FILE"
        yield failed("catalog", f"{there} cannot be written: {error.strerror}", fix)
        return
    try:
        made_ms, now_ms = os.fstat(handle).st_mtime_ns // 1_000_000, wall_clock_ms()
        yield _place(path, there)
        yield _lock(handle, Path(probe))
    finally:
        os.close(handle)
        os.unlink(probe)
    yield room("disk", there)
    rows: tuple[JobRow, ...] = ()
    if path.exists():
        try:
            refuse_unsafe(path)
            yield _private(path)
            rows = catalog.look()
            yield from _left_behind(rows, path, job)
            yield from _cut_off(catalog, rows, job)
        except BackfillError as error:
            yield refused("jobs", error)
    yield _clock(now_ms, made_ms, rows, there)


def nearest(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next(one for one in (folder, *folder.parents) if os.path.lexists(one))


def room(name: str, folder: Path, needed: int = 0, of: str = "") -> Check:
    """Whether the disk of a folder has enough space. needed: bytes, `of` what."""
    free = shutil.disk_usage(nearest(folder)).free
    said = f"{spell_size(free)} free in {folder}"
    fix = "free disk space there, or use a folder on another disk"
    if needed:
        said += f"; {of}: {spell_size(needed)}"
    if free == 0:
        return failed(name, f"{folder} is full", fix)
    return warning(name, said, fix) if free < max(needed, LITTLE_BYTES) else ok(name, said)


def _place(path: Path, there: Path) -> Check:
    if path.exists():
        return ok("catalog", str(path))
    if path.parent.exists():
        return ok("catalog", f"{path}: does not exist yet, can be created")
    return ok("catalog", f"{path}: does not exist yet, nor its folder; both can be created in {there}")


def _lock(handle: int, probe: Path) -> Check:
    """The lock that runners and commands use can be taken, and is refused to a second holder."""
    second = os.open(probe, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ok("lock", f"flock works in {probe.parent}")
    except OSError as error:
        return failed("lock", f"no flock in {probe.parent}: {error.strerror}", ELSEWHERE)
    finally:
        os.close(second)
    return failed("lock", f"flock in {probe.parent} has no effect: two runners could have the same job", ELSEWHERE)


def _private(path: Path) -> Check:
    """Called after refuse_unsafe: only the owner can write the catalog."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        said = f"{path} can be read by others (mode {mode:o}); it holds configs and positions, no secrets"
        return warning(
            "permissions", said, shell(f"chmod 600 {quote(str(path))}") + "; any other command does it, too"
        )
    return ok("permissions", f"{path} is accessible only to its owner")


def _left_behind(rows: tuple[JobRow, ...], path: Path, job: str | None) -> Iterator[Check]:
    for row in rows:
        if row.state is JobState.FAILED and not row.live:
            yield _failed(row, job)
    dead = [row for row in rows if row.dead]
    for row in dead:
        runner = f"pid {row.lease.pid} on {row.lease.host}"
        said = f"job {row.name!r}: its runner, {runner}, has been gone since {spell_moment(row.lease.renewed_ms)}"
        yield warning("jobs", said, command(f"resume {row.name}"))
    if not dead:
        live = sum(row.live for row in rows)
        yield ok("jobs", f"{len(rows)} in {path}, {live} with a runner, none whose runner died")


def _cut_off(catalog: Catalog, rows: tuple[JobRow, ...], job: str | None) -> Iterator[Check]:
    """Killed starts, which may have left a replication slot that fills its server's disk.

    For a job that was created, the next step is to run it: a drop would forget it. A start's config file is not
    recorded.
    """
    made = {row.name for row in rows}
    for begun in catalog.starts.look():
        if not runs_at(catalog.path, begun.job):
            again = (
                command("start --config FILE") if begun.job == job else Hint.of("start it again with its config")
            )
            fix = again + ", or: " + command(f"drop {begun.job} --confirm {begun.job}")
            if begun.job in made:
                fix = command(f"resume {begun.job}")
            yield warning("jobs", f"{spell_pending_start(begun)}; what it held upstream may still exist", fix)


def _failed(row: JobRow, job: str | None) -> Check:
    """Why a job failed and what to do next: a failed check for the job in question, a warning for others."""
    said, fix = (
        f"job {row.name!r} failed: {row.reason}",
        row.why.hint.of_file(row.config_file) or command(f"resume {row.name}"),
    )
    return failed("job", said, fix) if row.name == job else warning("jobs", said, fix)


def _clock(now_ms: int, made_ms: int, rows: tuple[JobRow, ...], there: Path) -> Check:
    """This machine's time compared with that of a new file, and with the newest time in the catalog."""
    newest_ms = max((max(row.epoch, row.lease.renewed_ms or 0) for row in rows), default=0)
    fix = "set the clocks (ntp); until then times and lags are wrong, but not what is read and committed"
    if abs(made_ms - now_ms) > CLOCKS_APART_MS:
        apart = spell_duration(abs(made_ms - now_ms) / 1000)
        return warning("clock", f"the file system of {there} and this machine are {apart} apart", fix)
    if newest_ms > now_ms + CLOCKS_APART_MS:
        ahead = spell_duration((newest_ms - now_ms) / 1000)
        return warning(
            "clock", f"{spell_moment(now_ms)}, but the newest time in the catalog is {ahead} later", fix
        )
    return ok("clock", spell_moment(now_ms))


def _described(config: JobConfig) -> Check:
    """The config in one line; names a cluster's own Python, which cannot be checked from here."""
    said = f"job {config.job.name!r}, no errors"
    if not config.spark.is_local:
        theirs = config.spark.conf.get("spark.pyspark.python", "the cluster's")
        said += f"; executors use their own Python ({theirs}), which must have the same minor version as this one"
    return ok("config", said)


def _of_job(config: JobConfig, catalog: Catalog) -> Iterator[Check]:
    """Connects to upstream, sink and Spark."""
    yield from _beside(config)
    try:
        report = plan(config, catalog, tries=lambda resources: resources.spark)
    except HistoryGone as error:
        yield refused("retention", error)
        return
    except BackfillError as error:
        yield refused("plan", error)
        return
    yield from _planned(report, _has_failed(config.job.name, catalog))
    size = sum(table.size_bytes for table in report.tables)
    yield room(
        "staging", Path(config.job.staging), size, "the whole snapshot, of which it holds two commits at a time"
    )
    if config.job.strategy == "chain":
        most = config.spool.max_size
        of = "spool.max_size" if most else "waiting in the log"
        yield room("spool", Path(config.spool.path), most or report.pending_bytes, of)
    yield from _clocks(config)


def _beside(config: JobConfig) -> Iterator[Check]:
    """The systems that upstream and sink need beside themselves; whoever cannot be opened is told by the plan."""
    with ExitStack() as stack:
        try:
            upstream, sink = stack.enter_context(closing(config.open_upstream())), config.open_sink()
        except BackfillError:
            return
        for name, ask in (*upstream.extras.beside.items(), *sink.extras.beside.items()):
            try:
                yield ok(name, ask())
            except BackfillError as error:
                yield refused(name, error)


def _has_failed(job: str, catalog: Catalog) -> bool:
    return any(row.name == job and row.state is JobState.FAILED for row in catalog.jobs())


def _planned(report: PlanReport, has_failed: bool) -> Iterator[Check]:
    """has_failed: the job's last run failed, for a reason that a plan may not detect."""
    if not report.refused:
        start = "start would continue where it failed" if has_failed else "nothing that start would refuse"
        yield ok("plan", f"strategy {report.strategy}, {report.spell_amount(report.tables)}; {start}")
    for refusal in report.refused:
        yield failed("plan", refusal.message, refusal.hint)
    for one in report.warnings:
        yield warning("plan", one)
    for guard in report.guards:
        said = f"{guard.name}: {guard.said}"
        yield ok("guard", said) if guard.fine else warning("guard", said)
    if report.retention:
        yield ok("retention", f"the upstream must keep {report.retention}")


def _clocks(config: JobConfig) -> Iterator[Check]:
    """The clocks of those systems that tell the time."""
    with ExitStack() as stack:
        upstream, sink = stack.enter_context(closing(config.open_upstream())), config.open_sink()
        for side, clock_ms in (("upstream", upstream.extras.clock_ms), ("sink", sink.extras.clock_ms)):
            if clock_ms is not None:
                try:
                    yield clock(side, clock_ms, wall_clock_ms)
                except BackfillError as error:
                    yield refused(f"{side} clock", error)


def clock(side: str, clock_ms: Callable[[], int], now_ms: Callable[[], int]) -> Check:
    """A system's time compared with this machine's, allowing for the time that the answer took."""
    before_ms = now_ms()
    theirs_ms = clock_ms()
    after_ms = now_ms()
    ahead_ms = theirs_ms - (before_ms + after_ms) / 2
    apart = spell_duration(abs(ahead_ms) / 1000)
    if abs(ahead_ms) > APART_MS + (after_ms - before_ms) / 2:
        said = f"{apart} {'ahead of' if ahead_ms > 0 else 'behind'} this machine's"
        return warning(f"{side} clock", said, "set the clocks (ntp); lag and --max-lag are wrong by that much")
    return ok(f"{side} clock", f"within {apart} of this machine's")
