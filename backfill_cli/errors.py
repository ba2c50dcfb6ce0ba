"""All errors of this program, as one tree. The exit codes are frozen.

BackfillError
├── UsageError              2  the command, the config or the job's fingerprint is wrong
│   └── ConfigError         2  every fault of a config file at once
├── SinkInUse               2  the sink's table already exists and has rows
├── NoSuchJob               4
├── Held                    5  another runner has the job, or another job owns the table
├── Transient               6  try again: according to the connector it may pass
│   └── LogFirst            6  rows can be read only once the change log is applied further
├── HistoryGone             7  the upstream no longer has what the job still needs
├── WaitTimedOut            8
├── StoppedEarly            9  stopped before the requested state was reached
├── VerifyMismatch          3
└── Fatal                   1  commit nothing, keep the last epoch
    ├── BadData             1  a row, a file or a schema that cannot be applied
    ├── SpoolFull           6  no more of the change log can be taken until there is room
    ├── SparkEnded          6  Spark's Java process was killed: a new run starts another one
    └── StateConflict       1  sink and catalog contradict each other: refuse to guess
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Self

START_OVER = "\x1fstart over\x1f"
"""In a hint: the way on of a job that cannot go on. Its error puts it into words, with the job's name if known."""

RESTORE = f"restore it, or {START_OVER}"
"""The hint where something that the job needs is gone or damaged, which the message names."""

RETRIED = "it is retried automatically"
"""The hint of a failure that may pass, and of which nobody knows more."""

CORRECT = "correct the rows upstream, or leave them out with a `where`"
"""The hint for rows that a sink's table refuses."""

NEWER_DUCKDB = "pip install --upgrade duckdb"
"""The hint for a file that a later version of DuckDB wrote."""


def free_space(folder: str | Path) -> str:
    """The hint for a disk without room."""
    return f"free disk space: df -h {shlex.quote(str(folder))}"


_TO = "to (?:continue|change|follow|end it): "
"""How the second part of a line that people see begins: what to type or do."""

_WAY_ON = re.compile(f"; (?={_TO})")
_ALIKE = re.compile(rf";(\\*) (?={_TO})")
_KEPT_APART = re.compile(rf";(\\*)\\ (?={_TO})")

# A config option in a hint: its path, or an `accept_…` option.
_OPTION = re.compile(
    r"\b(?:job|upstream|changes|snapshot|tables|sink|spark|retry|barrier|spool)\.[a-z]|\baccept_[a-z]"
)

_RETRIED = re.compile(rf"(?:^|; ){RETRIED}")


def with_way_on(said: str, way_on: str = "", to: str = "continue") -> str:
    """`said; to continue: way_on`, one line that `parted` splits again; only `said` if there is no way on.

    `said` can contain names and paths from outside. What looks like the separator in it gets a backslash.
    """
    apart = _ALIKE.sub(r";\1\\ ", said)
    return f"{apart}; to {to}: {way_on}" if way_on else apart


def parted(line: str) -> tuple[str, str, str]:
    """What `with_way_on` was given, as (said, "to continue", way_on); the last two are empty without a way on."""
    said, *rest = _WAY_ON.split(line, maxsplit=1)
    to, _, way_on = "".join(rest).partition(": ")
    return _KEPT_APART.sub(r";\1 ", said), to, way_on


def start_over(job: str, *options: str) -> str:
    """The words for START_OVER: the command that drops this job, with these options."""
    drop = " ".join(["backfill drop", job, *options, "--confirm", job])
    return f"{drop}, and start over"  # a comma ends a command in a hint


class BackfillError(Exception):
    """What went wrong (what, where, which value) and what to type next.

    exit_code: what the process ends with, see the tree above. template: the hint, with START_OVER as it was given;
    an error that is built from another one gets its template.
    """

    exit_code = 1
    answered = False
    """Whether stdout already has the command's answer as JSON: then no second object is printed."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.template = hint
        self._start_over = "drop the job and start over"

    @property
    def hint(self) -> str:
        return self.template.replace(START_OVER, self._start_over)

    @hint.setter
    def hint(self, hint: str) -> None:
        self.template = hint

    @property
    def starts_over(self) -> bool:
        """Whether the hint says to start over."""
        return START_OVER in self.template

    def __str__(self) -> str:
        return f"{self.message}\nTry: {self.hint}" if self.hint else self.message

    def without_job(self) -> Self:
        """The same error for a job that was not created: there is nothing to drop."""
        self._start_over = "start again"
        return self

    def naming(self, job: str, with_rows: bool) -> Self:
        """The same error, its hint with the command that starts this job over: what raised it did not know it.

        with_rows: whether its tables can be dropped, too, so that the next start is accepted.
        """
        self._start_over = start_over(job, *(["--with-rows"] if with_rows else []))
        return self

    def way_on(self, job: str) -> str:
        """The hint and the command to type after it, unless the hint says to start over or names a command itself.

        After a change of the config the command is `start`: `resume` uses the config stored in the catalog.
        """
        hint = _RETRIED.sub("", self.hint)
        if self.starts_over or "backfill " in hint:
            return hint
        go_on = "backfill start --config FILE" if _OPTION.search(hint) else f"backfill resume {job}"
        return f"{hint}; then: {go_on}" if hint else go_on


class UsageError(BackfillError):
    exit_code = 2


class ConfigError(UsageError):
    """All faults of one config, each `path.in.file: what is wrong`."""

    def __init__(self, source: str, faults: Sequence[str], hint: str = "") -> None:
        self.source = source
        self.faults = tuple(faults)
        listed = "\n".join(f"  {fault}" for fault in self.faults)
        count = f"{len(self.faults)} fault{'s' if len(self.faults) > 1 else ''}"
        super().__init__(f"{source}: {count}\n{listed}", hint)


class SinkInUse(UsageError):
    pass


class NoSuchJob(BackfillError):
    exit_code = 4


class Held(BackfillError):
    exit_code = 5


class Transient(BackfillError):
    """A connector's failure that may pass: the engine retries with backoff, up to a limit."""

    exit_code = 6

    @property
    def waits_for(self) -> str:
        """What is waited for, and what would end the wait; `status` shows the two separately."""
        return with_way_on(self.message, self.hint)

    def given_up(self) -> Self:
        """The same error where it ends a command: nothing is retried any more."""
        kept = _RETRIED.sub("", self.template)
        if kept != self.template:
            self.hint = f"{kept}; then type the command again" if kept else "type the command again"
        return self


class LogFirst(Transient):
    """Rows cannot be read as they are now: changes of columns are in the log, and it is not applied that far."""


class HistoryGone(BackfillError):
    exit_code = 7


class WaitTimedOut(BackfillError):
    exit_code = 8


class StoppedEarly(BackfillError):
    exit_code = 9


class VerifyMismatch(BackfillError):
    exit_code = 3
    answered = True  # with what differs


class Fatal(BackfillError):
    """A connector's failure that will not pass: nothing is committed, the last epoch remains."""


class BadData(Fatal):
    pass


def thread_failed(job: str, what: str, exc: Exception) -> Fatal:
    """A bug of ours in a thread beside the run, for the run to raise: the thread would end silently."""
    return Fatal(f"job {job!r}: {what} failed: {type(exc).__name__}: {exc}", f"backfill resume {job}")


class SpoolFull(Fatal):
    exit_code = 6


class SparkEnded(Fatal):
    exit_code = 6


class StateConflict(Fatal):
    pass
