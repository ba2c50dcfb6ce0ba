"""What `--json` prints, as values: their JSON, and the small ones of single commands.

`view/schemas.py` makes the schemas of all of them from the same types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import BackfillError, ConfigError, Hint
from backfill_cli.model.job import JobState, Verb
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.reports import Setting
from backfill_cli.model.upstream import Incomplete

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA = 2
"""Of all answers. Within a version fields are only added; a change of a field's meaning is a new version."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do or type next. commands: those of this program in it, as they are typed."""

    text: str
    commands: Sequence[str]


@dataclass(frozen=True, slots=True)
class Limited:
    """What limits a job, or why it ended. to: what the hint is for: continue, change, follow."""

    kind: Kind
    text: str
    to: str
    hint: Hint


def document(answer: "DataclassInstance") -> dict[str, Any]:
    """The JSON object that is printed."""
    return {"schema": SCHEMA, **plain(answer)}


def plain(value: Any) -> Any:
    """A value of the model as JSON: a dataclass with its properties, a state as a code, an empty hint as null."""
    match value:
        case StrEnum():
            return code(value)
        case Hint():
            return plain(Advice(str(value), tuple(map(str, value.commands)))) if value else None
        case Limit():
            return plain(Limited(value.kind, value.said, value.to, value.hint))
        case Mapping():
            return {plain(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
    if is_dataclass(value):
        kind: type = type(value)
        return {name: plain(getattr(value, name)) for name in members(kind)}
    return value


def code(value: StrEnum) -> str:
    """`not_started`."""
    return value.value.replace(" ", "_")


UNTOLD: dict[str, bool] = {"untold": True}
"""The metadata of a field that is for pictures only."""


@cache
def members(kind: type) -> tuple[str, ...]:
    """The names of a dataclass's fields, without those that are `UNTOLD`, then of its properties."""
    told = [name for name, one in vars(kind).items() if isinstance(one, property)]
    return (*(field.name for field in fields(kind) if field.metadata != UNTOLD), *told)


@dataclass(frozen=True, slots=True)
class ErrorTold:
    """faults: those of a config, each `path: what is wrong`. exit_code: what the command ends with."""

    message: str
    hint: Hint
    exit_code: int
    faults: Sequence[str] = ()

    @staticmethod
    def of(error: Exception) -> "ErrorTold":
        if not isinstance(error, BackfillError):
            return ErrorTold(f"{type(error).__name__}: {error}", Hint(), 1)
        faults = error.faults if isinstance(error, ConfigError) else ()
        return ErrorTold(error.message, error.hint, error.exit_code, faults)


@dataclass(frozen=True, slots=True)
class Failed:
    """A command that failed."""

    error: ErrorTold


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's log. time: UTC; null for a line that a library wrote."""

    time: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Logs:
    """The newest lines of a job's log, oldest first. log: the file."""

    job: str
    log: str
    lines: Sequence[LogLine]


@dataclass(frozen=True, slots=True)
class Posted:
    """A command for a job. rate: rows/s of a throttle, null for no limit. id: of the command in the catalog.
    table: of a throttle of one table, of one that joins or leaves; else empty.

    epoch: of the barrier that took it; null while a runner has not. committed: the last one that the sink then
    has, as `status` names it. note: why it has no effect, or what it does.
    """

    job: str
    command: Verb
    rate: float | None
    id: int
    epoch: int | None
    committed: int
    note: Hint
    table: str = ""


@dataclass(frozen=True, slots=True)
class Reached:
    """A job has reached what was waited for. epoch: the last committed one; of a pause, where it took effect.

    incomplete: of one that has caught up, the upstream's newest commit if it cannot be applied yet.
    """

    job: str
    goal: str
    state: JobState
    epoch: int
    incomplete: Incomplete | None = None


@dataclass(frozen=True, slots=True)
class Detached:
    """A job was started in the background. log: its file."""

    job: str
    pid: int
    log: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """A job was not started, as the answer was no. file: its config, which is kept. hint: what starts it."""

    job: str
    file: str
    hint: Hint


@dataclass(frozen=True, slots=True)
class LeftName:
    """A name that people query and that is still a view of `target`. before: what it was is kept so."""

    name: str
    target: str
    before: str | None


@dataclass(frozen=True, slots=True)
class DroppedJob:
    """A job was forgotten. tables_dropped: with their rows. left_upstream: statements to run there, if any."""

    job: str
    tables_dropped: bool
    left_upstream: Sequence[str]
    live: Sequence[LeftName]


@dataclass(frozen=True, slots=True)
class WrittenConfig:
    """A config was written. fill_in: its options without a value."""

    file: str
    fill_in: Sequence[str]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a config that are in force."""

    file: str
    options: Sequence[Setting]


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """A report was written. beside: the other job in it."""

    job: str
    beside: str | None
    file: str
    bytes: int
