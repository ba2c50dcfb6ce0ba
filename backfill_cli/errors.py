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
    │   └── ColumnAdded     1  rows have a column that the table does not have yet
    ├── SpoolFull           6  no more of the change log can be taken until there is room
    ├── SparkEnded          6  Spark's Java process was killed: a new run starts another one
    └── StateConflict       1  sink and catalog contradict each other: refuse to guess

Each has a `Hint`: what to do or type next, as a value. What raises an error builds it; nothing looks for words in
it. Commands of this program, SQL and commands of other programs are parts of their own: what prints a hint can
name the catalog and the config that were typed (`view/console.py`), and give each a line of its own.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Self


class Interrupted(Exception):
    """No failure: what was being done is not wanted any more, and nothing of it is used."""


_OF_CONFIG, _UNNAMED = ("--config", "--sink", "--from-sink"), ("FILE", "job.toml")
"""Options that take a config file, and what stands for one that is not known."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of this program. words: what follows `backfill`, not quoted."""

    words: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(("backfill", *self.words))

    @property
    def names_file(self) -> bool:
        """Whether it has a config file, whose catalog it finds."""
        return any(option in self.words for option in _OF_CONFIG)

    @property
    def lacks_file(self) -> bool:
        """Whether its author did not know the config file."""
        return self.of_file("") != self

    def of_file(self, file: str) -> "Command":
        """With this config file, where its author did not know it."""
        pairs = zip(("", *self.words), self.words, strict=False)
        return Command(tuple(file if one in _OF_CONFIG and word in _UNNAMED else word for one, word in pairs))


@dataclass(frozen=True, slots=True)
class Foreign:
    """SQL, or a command of another program, as it is typed."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class StartOver:
    """The way on of a job that cannot go on.

    drop: the command that drops the job; None before that is known. begun: whether there is a job to drop.
    """

    drop: Command | None
    begun: bool = True

    @property
    def said(self) -> tuple["Said", ...]:
        if self.drop is not None:
            return self.drop, ", and start over"
        return ("drop the job and start over" if self.begun else "start again",)


Said = str | Command | Foreign
Part = Said | StartOver


@dataclass(frozen=True, slots=True)
class Hint:
    """parts: in their order. config: it asks for a change of the config. retried: what failed may pass."""

    parts: tuple[Part, ...] = ()
    config: bool = False
    retried: bool = False

    @staticmethod
    def of(said: "Hint | str") -> "Hint":
        """A hint without anything to type may be given as text."""
        return said if isinstance(said, Hint) else Hint((said,) if said else ())

    @staticmethod
    def read(told: Mapping[str, Any]) -> "Hint":
        """The hint that the codec wrote as JSON."""

        def part(one: Any) -> Part:
            if isinstance(one, str):
                return one
            if "words" in one:
                return Command(tuple(one["words"]))
            if "text" in one:
                return Foreign(one["text"])
            return StartOver(one["drop"] and Command(tuple(one["drop"]["words"])), one["begun"])

        return Hint(tuple(map(part, told["parts"])), told["config"], told["retried"])

    def __add__(self, more: "Hint | str") -> "Hint":
        then = Hint.of(more)
        return Hint((*self.parts, *then.parts), self.config or then.config, self.retried or then.retried)

    def __radd__(self, before: str) -> "Hint":
        return Hint.of(before) + self

    def __bool__(self) -> bool:
        return bool(self.parts) or self.retried

    def __str__(self) -> str:
        return "".join(map(str, self.said))

    @property
    def said(self) -> tuple[Said, ...]:
        """The words, neighbouring texts joined."""
        told: list[Said] = []
        retried = (f"{'; ' if self.parts else ''}it is retried automatically",) if self.retried else ()
        for part in (*self.parts, *retried):
            for one in part.said if isinstance(part, StartOver) else (part,):
                if isinstance(one, str) and told and isinstance(told[-1], str):
                    told[-1] += one
                else:
                    told.append(one)
        return tuple(told)

    @property
    def starts_over(self) -> bool:
        """Whether it says to start over."""
        return any(isinstance(part, StartOver) for part in self.parts)

    @property
    def commands(self) -> tuple[Command, ...]:
        """Those of this program."""
        return tuple(one for one in self.said if isinstance(one, Command))

    def also(self, by: str, more: "Hint | str") -> "Hint":
        """Both, joined by these words; without them where no words are before `more`."""
        return self + by + more if self.parts else self + more

    def starting_over(self, drop: Command | None, begun: bool = True) -> "Hint":
        """The same, where it says to start over by this command, if there is a job to drop."""
        over = StartOver(drop, begun)
        return replace(self, parts=tuple(over if isinstance(one, StartOver) else one for one in self.parts))

    def of_file(self, file: str) -> "Hint":
        """The same, its commands with this config file; unchanged if `file` is empty."""
        return self.with_commands(lambda one: one.of_file(file)) if file else self

    def with_commands(self, change: Callable[[Command], Command]) -> "Hint":
        """The same, each command changed."""

        def changed(part: Part) -> Part:
            if isinstance(part, StartOver):
                return part if part.drop is None else replace(part, drop=change(part.drop))
            return change(part) if isinstance(part, Command) else part

        return replace(self, parts=tuple(map(changed, self.parts)))


def command(*lines: str) -> Hint:
    """Commands of this program, one after the other. lines: what follows `backfill`, quoted for a shell.

    A config that their author does not know is `FILE`, or `job.toml`.
    """
    return joined(Hint((_command(line),)) for line in lines)


def _command(line: str) -> Command:
    try:
        return Command(tuple(shlex.split(line)))
    except ValueError:  # of a job with a name that no job can have
        return Command(tuple(line.split()))


def sql(*statements: str) -> Hint:
    """Statements, one after the other."""
    return joined(map(shell, statements))


def shell(line: str) -> Hint:
    """A command of another program, quoted for a shell."""
    return Hint((Foreign(line),))


def joined(hints: Iterable[Hint | str]) -> Hint:
    """All of them, one after the other."""
    return reduce(lambda told, more: told.also("; ", more), hints, Hint())


def in_config(said: "Hint | str") -> Hint:
    """What asks for a change of the config: after it, the command to continue is `start`."""
    return replace(Hint.of(said), config=True)


def retried(said: "Hint | str" = "") -> Hint:
    """Of a failure that may pass; said: what would help."""
    return replace(Hint.of(said), retried=True)


START_OVER = Hint((StartOver(None),))
"""The way on of a job that cannot go on. Its error puts it into words, with the job's name if known."""

RESTORE = "restore it, or " + START_OVER
"""The hint where something that the job needs is gone or damaged, which the message names."""

RETRIED = retried()
"""The hint of a failure that may pass, and of which nobody knows more."""

CORRECT = (
    "correct the rows upstream and resume the job, or " + START_OVER + ", with a `where` that leaves them out"
)
"""The hint for rows that a sink's table refuses. A job keeps its transform for its life."""

CORRECT_VALUE = (
    "correct it upstream and resume the job, or "
    + START_OVER
    + ", with another value for it in the transform's select"
)
"""The same for a single value."""

NEWER_DUCKDB = shell("pip install --upgrade duckdb")
"""The hint for a file that a later version of DuckDB wrote."""


def free_space(folder: str | Path) -> Hint:
    """The hint for a disk without room."""
    return "free disk space: " + shell(f"df -h {shlex.quote(str(folder))}")


def start_over(job: str, *options: str) -> Hint:
    """The words for START_OVER: the command that drops this job, with these options."""
    return Hint(StartOver(_drop(job, *options)).said)


def _drop(job: str, *options: str) -> Command:
    return _command(" ".join(["drop", job, *options, "--confirm", job]))


class BackfillError(Exception):
    """What went wrong (what, where, which value) and what to type next.

    exit_code: what the process ends with, see the tree above. hint: as given; text only if nothing in it is typed.
    table: the one table that it is of, as the config names it; empty if it is of none, or of several; None: not
    known.
    """

    exit_code = 1
    answered = False
    """Whether stdout already has the command's answer as JSON: then no second object is printed."""
    shown = False
    """Whether stderr already has it, as it does where the process that failed is another one."""

    def __init__(self, message: str, hint: Hint | str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = Hint.of(hint)
        self.table: str | None = None

    def of(self, table: str) -> Self:
        """The same error, of this table alone."""
        self.table = table
        return self

    def __str__(self) -> str:
        return f"{self.message}\nTry: {self.hint}" if self.hint else self.message

    def without_job(self) -> Self:
        """The same error for a job that was not created: there is nothing to drop."""
        self.hint = self.hint.starting_over(None, begun=False)
        return self

    def naming(self, job: str, with_rows: bool) -> Self:
        """The same error, its hint with the command that starts this job over: what raised it did not know it.

        with_rows: whether its tables can be dropped, too, so that the next start is accepted.
        """
        self.hint = self.hint.starting_over(_drop(job, *(["--with-rows"] if with_rows else [])))
        return self

    def way_on(self, job: str) -> Hint:
        """The hint and the command to type after it, unless the hint says to start over or has a command itself.

        After a change of the config the command is `start`: `resume` uses the config stored in the catalog.
        """
        hint = replace(self.hint, retried=False)
        if hint.starts_over or hint.commands:
            return hint
        go_on = command("start --config FILE") if hint.config else command(f"resume {job}")
        return hint.also("; then: ", go_on)


class UsageError(BackfillError):
    exit_code = 2


class ConfigError(UsageError):
    """All faults of one config, each `path.in.file: what is wrong`."""

    def __init__(self, source: str, faults: Sequence[str], hint: Hint | str = "") -> None:
        self.source = source
        self.faults = tuple(faults)
        listed = "\n".join(f"  {fault}" for fault in self.faults)
        count = f"{len(self.faults)} problem{'s' if len(self.faults) > 1 else ''}"
        super().__init__(f"{source}: {count}\n{listed}", hint)


class SinkInUse(UsageError):
    """replaceable: whether a derived table can be told to take the place of what the table has."""

    replaceable = False


class NoSuchJob(BackfillError):
    exit_code = 4


class Held(BackfillError):
    exit_code = 5


class Transient(BackfillError):
    """A connector's failure that may pass: the engine retries with backoff, up to a limit.

    code: what the system that failed calls it, where that is not known from this error's cause.
    """

    exit_code = 6

    def __init__(self, message: str, hint: Hint | str = "", code: str = "") -> None:
        super().__init__(message, hint)
        self.code = code

    def given_up(self) -> Self:
        """The same error where it ends a command: nothing is retried any more."""
        if self.hint.retried:
            kept = replace(self.hint, retried=False)
            self.hint = kept.also("; then ", "type the command again")
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


class ColumnAdded(BadData):
    """Rows have a column that the table does not have yet: they are read again if their source knows it.

    at: the table, and partition and offset of the record.
    """

    def __init__(self, message: str, hint: Hint | str = "", at: tuple[str, int, int] | None = None) -> None:
        super().__init__(message, hint)
        self.at = at


def thread_failed(job: str, what: str, exc: Exception) -> Fatal:
    """A bug of ours in a thread beside the run, for the run to raise: the thread would end silently."""
    return Fatal(f"job {job!r}: {what} failed: {type(exc).__name__}: {exc}", command(f"resume {job}"))


class SpoolFull(Fatal):
    exit_code = 6


class SparkEnded(Fatal):
    exit_code = 6


class StateConflict(Fatal):
    pass


_OF_NO_TABLE = (Transient, SparkEnded, SpoolFull, StateConflict)
"""What ends for all tables together: only what raises one of these can know that it is of one table."""


@contextmanager
def of_table(name: str, *more: type[BackfillError]) -> Iterator[None]:
    """An error in the block is of this table, if its kind says so: of data, or one of `more`.

    In the block only this table is dealt with. Any other failure in it may be of the server, or of the disk.
    """
    try:
        yield
    except BackfillError as error:
        if error.table is None and isinstance(error, (BadData, *more)) and not isinstance(error, _OF_NO_TABLE):
            error.table = name
        raise
