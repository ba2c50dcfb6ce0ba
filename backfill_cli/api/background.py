"""A job run in the background: the same command again, in its own session, with a log of bounded size."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from backfill_cli import errors
from backfill_cli.catalog import Catalog
from backfill_cli.errors import (
    BackfillError,
    ConfigError,
    Held,
    Hint,
    NoSuchJob,
    UsageError,
    WaitTimedOut,
    command,
)
from backfill_cli.model.units import spell_duration, spell_exit
from backfill_cli.view.answers import Detached
from backfill_cli.view.console import ERROR_FILE
from backfill_cli.view.log import LOG_BYTES, Unless, error_of, kept, log_of, opened

POLL_S = 0.2
LOG = "BACKFILL_DETACHED_LOG"  # tells the background process where its output goes
LOOK_S = 5.0


def start_detached(
    job: str,
    catalog: Catalog,
    words: Sequence[str],
    barrier_within_s: float | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Detached:
    """The job runs in the background and holds its lease, or has already ended successfully.

    words: the command that runs it. barrier_within_s: also wait this long for its first barrier. Raises Held while
    another runner has the job, before anything is written to the log; the runner's error if it failed at once,
    once its output has been `told`; WaitTimedOut if there was no barrier in time: the runner keeps running.
    """
    log = log_of(catalog.path, job)
    fresh = Unless(log)
    catalog.lock_job(job).release()
    # -P: the program that was typed, also in a folder with another package of its name, such as a checkout.
    program = [sys.executable, "-P", "-m", "backfill_cli", *words, "--catalog", str(catalog.path)]
    if log.exists() and log.stat().st_size >= LOG_BYTES:
        os.replace(log, kept(log))
    failure = error_of(log)
    failure.unlink(missing_ok=True)
    with _opened(log) as output:
        began = output.seek(0, os.SEEK_END)
        runner = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, LOG: str(log), ERROR_FILE: str(failure)},
        )
    deadline = time.monotonic() + (barrier_within_s or 0.0)
    there = _holds if barrier_within_s is None else _passed_barrier
    while not there(catalog, job, runner.pid):
        code = runner.poll()
        if code is not None and code != 0:
            with log.open(errors="replace") as written:
                written.seek(began)
                told(written.read().rstrip())
            refused = failure.exists() and job not in {row.name for row in catalog.listed()}
            error = _ended_with(failure, code, log)
            if refused:
                fresh.left_out()  # and all that it said has been told
            raise error
        if code == 0:
            break
        if barrier_within_s is not None and time.monotonic() > deadline:
            raise WaitTimedOut(
                f"job {job!r}: runner {runner.pid} made no commit within {spell_duration(barrier_within_s)}; "
                "it goes on",
                command(f"status {job}") + f", and its log: {log}",
            )
        time.sleep(POLL_S)
    return Detached(job, runner.pid, str(log))


def _ended_with(failure: Path, code: int, log: Path) -> BackfillError:
    """The error that a runner left when it ended; a runner that was killed left none."""
    try:
        left = json.loads(failure.read_text("utf-8"))
        error = _kind(left["kind"])(left["message"], Hint.read(left["hint"]))
    except (OSError, ValueError, KeyError):
        error = BackfillError(f"the runner ended with {spell_exit(code)} and left no error", f"its log: {log}")
    error.exit_code = code if code > 0 else 128 - code
    error.shown = True
    return error


def _kind(name: str) -> type[BackfillError]:
    """The class of an error; of those that are made from more than message and hint, the one above."""
    kind: type[BackfillError] = getattr(errors, name, BackfillError)
    return UsageError if issubclass(kind, ConfigError) else kind


def in_background() -> bool:
    """Whether this process was started by another one, to run in the background."""
    return LOG in os.environ


@contextmanager
def bounded_log() -> Iterator[None]:
    """Inside the block, the log of a background process continues in a new file whenever it is full."""
    log = os.environ.get(LOG)
    if log is None:
        yield
        return
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            with suppress(OSError, UsageError):  # a full disk: keep writing to the same file
                rotate(Path(log))

    thread = threading.Thread(target=look, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rotate(log: Path) -> None:
    """If the file behind stdout and stderr is full, it has been renamed and a new file has taken its place.

    The process's own file handles are redirected, so that the output of libraries reaches the new file, too.
    """
    if os.fstat(sys.stderr.fileno()).st_size < LOG_BYTES:
        return
    with suppress(FileNotFoundError):  # the file was deleted: we are writing to one without a name
        os.replace(log, kept(log))
    with _opened(log) as fresh:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(fresh.fileno(), stream.fileno())


def _opened(log: Path) -> BinaryIO:
    """The log, for appending. Raises UsageError when it cannot be written."""
    try:
        return opened(log)
    except OSError as error:
        raise UsageError(
            f"log {log}: {error.strerror}", "run it without --detach, or make the log writable"
        ) from None


def _holds(catalog: Catalog, job: str, pid: int) -> bool:
    """Whether the runner has the job."""
    try:
        row = catalog.job(job)
    except (NoSuchJob, Held):  # Held: it is being created
        return False
    return row.live and row.lease.pid == pid


def _passed_barrier(catalog: Catalog, job: str, pid: int) -> bool:
    """Whether the runner has observed the upstream after taking every earlier command, a resume included."""
    if not _holds(catalog, job, pid):
        return False
    row = catalog.job(job)
    return row.reported is not None and row.reported.looked_ms is not None and not row.waiting
