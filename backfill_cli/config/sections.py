"""The config file as models. `[upstream]` and `[sink]` are checked by their connectors' models."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from backfill_cli.config.derived import DerivedSection
from backfill_cli.config.section import KeyColumns, Section, TableName
from backfill_cli.contracts import own
from backfill_cli.contracts.options import STORED, FilePath
from backfill_cli.model.deadline import FLOOR, Deadline, finish_ms
from backfill_cli.model.guard import Guard, Limited, Rule, Window
from backfill_cli.model.units import duration_s, size_bytes, spell_duration, spell_number, spell_size

DEFAULT_STAGING = ".backfill/staging"
DEFAULT_SPOOL = ".backfill/spool"
JOB_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,62}")
"""A command takes a name that begins with `-` for an option."""

Duration = Annotated[
    float,
    BeforeValidator(duration_s),
    WithJsonSchema({"type": ["string", "number"], "examples": ["500ms", "1s", "30m"], "description": "duration"}),
]


def _setting(value: Any) -> Any:
    """The value as text for Spark, which takes no other: TOML's `true` and `4` as Spark writes them."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _mounted(path: str) -> str:
    """A local path: driver and sink open these files themselves, with no other file system than this machine's."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", path)
    if scheme is None:
        return path
    url = urlsplit(path)
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path.strip("/"):
        raise ValueError(
            f"{scheme[1]}:… is not a folder on this machine; mount it, and name the folder: /mnt/staging"
        )
    return unquote(url.path)


OnError = Literal["stop", "set-aside"]


class Job(Section):
    name: str = Field(
        description="The job's name in the catalog and in every command: 1 to 63 of `a-z`, `0-9`, `_`, `-`; "
        "the first is no `-`."
    )
    strategy: Literal["auto", "snapshot", "source", "arrangement", "chain"] = Field(
        default="auto",
        description="How snapshot and changes are combined; `auto` chooses, and `plan` shows which and why. It "
        "never chooses `chain`, which takes the change log into a spool at once, for a log that cannot wait.",
    )
    on_error: OnError = Field(
        default="stop",
        description="What becomes of the job if an error is of one table alone: a value that the sink cannot "
        "take, a record that cannot be read, columns that cannot be followed any more. `stop` ends the run; "
        "`set-aside` goes on without that table, whose rows in the sink stay as they are until `backfill refill` "
        "puts it back. The last table is never set aside.",
    )
    staging: Annotated[str, FilePath()] = Field(
        default=DEFAULT_STAGING,
        min_length=1,
        description="Folder for staged rows. On a cluster, driver, executors and sink must share it.",
    )

    @field_validator("staging")
    @classmethod
    def _folder(cls, staging: str) -> str:
        return _mounted(staging)

    @field_validator("name")
    @classmethod
    def _no_path(cls, name: str, info: ValidationInfo) -> str:
        stored = info.context == STORED  # by an earlier version: it runs on, and can be dropped
        if not JOB_NAME.fullmatch(name.lstrip("-") if stored else name):
            raise ValueError(
                "a job's name is 1 to 63 characters of a-z, 0-9, _ and -, the first of them no -; it is not a path"
            )
        return name


class Transform(Section):
    select: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The sink's columns as Spark SQL expressions over one row of the upstream. Default: all "
        "columns, unchanged.",
    )
    where: str | None = Field(
        default=None,
        min_length=1,
        description="Spark SQL condition; a row that no longer meets it is deleted from the sink.",
    )

    @property
    def is_empty(self) -> bool:
        """Whether every row passes unchanged."""
        return self.select is None and self.where is None


def _key_may_be_left_out(schema: dict[str, Any]) -> None:
    """An upstream that knows its keys fills `key` in before the table is checked."""
    schema["required"].remove("key")


class Table(Section):
    model_config = ConfigDict(json_schema_extra=_key_may_be_left_out)

    name: TableName = Field(description="The table's name upstream; it replaces `{table}` in paths.")
    key: KeyColumns = Field(
        min_length=1,
        description="Columns that identify a row, by their names upstream. Required, except for PostgreSQL "
        "(default: the primary key), and for a Kafka topic's events (default: partition and offset) and changes "
        "of Debezium (default: the columns of the records' keys).",
    )
    target: TableName | None = Field(
        default=None,
        description='The table in the sink, `"schema.name"` or a name. Default: the name upstream.',
    )
    live: TableName | None = Field(
        default=None,
        description='The name that people query, `"schema.name"` or a name. `backfill cutover` makes it a view of '
        "the target, and keeps what had this name before.",
    )
    immutable_key: bool = Field(
        default=False,
        description="Promise that a row's key never changes, for change logs that do not send the old key.",
    )
    rate: float | None = Field(
        default=None,
        ge=0,
        description="Limit on snapshot reads of this table with which it begins, in rows per second; "
        "`throttle.rate` is of all tables together, and both hold. 0 stops them, and `backfill throttle` changes "
        "it. Default: no limit of its own.",
    )
    transform: Transform | None = Field(default=None, description="Replaces `[transform]` for this table.")
    keep: Literal["columns"] | None = Field(
        default=None,
        description='`"columns"`: of this table the sink keeps only the key and the columns that derived tables '
        f"use, in a table of backfill's own, `{own.COLUMNS}…`, if `target` names none. Default: all columns.",
    )
    on_error: OnError | None = Field(default=None, description="Replaces `job.on_error` for this table.")

    @property
    def sink_name(self) -> str:
        """The name in the sink: the target, else the name without the quotes that an upstream's SQL needs."""
        if self.target is not None:
            return self.target
        plain = re.sub(r'"((?:[^"]|"")*)"', lambda part: part[1].replace('""', '"'), self.name)
        schema, dot, last = plain.rpartition(".")
        return plain if self.keep is None else f"{schema}{dot}{own.COLUMNS}{last}"


class Barrier(Section):
    interval_s: Duration = Field(
        default=1.0,
        alias="interval",
        ge=0.05,
        description="Shortest time between commits when live, idle or throttled.",
    )
    target_s: Duration = Field(
        default=5.0, alias="target", ge=0.05, description="How long staging one commit should take when behind."
    )
    fill_rows: int = Field(
        default=5_000_000,
        ge=1,
        description="About how many rows of the largest table that a derived table reads a commit fills it from; "
        "a pause acts between two. If there are fewer than twice as many, or ranges would cost much more than one "
        "SELECT, one commit fills it whole. Of DuckDB and PostgreSQL as sinks.",
    )


class Throttle(Section):
    rate: float | None = Field(
        default=None,
        ge=0,
        description="Limit on snapshot reads with which a job begins, in rows per second; 0 stops them, and "
        "`backfill throttle` changes it. Default: no limit.",
    )
    finish_by: str | None = Field(
        default=None,
        description='When the snapshot is to be read: a time of day in local time, `"06:00"`, the first one after '
        'the job was created; or a date and time, `"2026-12-01 06:00"`, also with a zone. No more rows per second '
        "are read than suffice for it; when it cannot be met, `status` and a hook (`deadline-at-risk`) say so. A "
        "rate, a guard and a pause prevail.",
    )
    floor: float = Field(
        default=FLOOR,
        gt=0,
        description="With `finish_by`: rows per second below which it does not slow the reading.",
    )

    @field_validator("finish_by")
    @classmethod
    def _moment(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                finish_ms(text, 0)
            except ValueError as exc:
                raise ValueError('must be a time of the day, "06:00", or "2026-12-01 06:00"') from exc
        return text

    def deadline(self, since_ms: int) -> Deadline | None:
        """since_ms: when the job was created."""
        return (
            None if self.finish_by is None else Deadline(finish_ms(self.finish_by, since_ms), since_ms, self.floor)
        )


class CatchUp(Section):
    measure: Literal["time", "barriers"] = Field(
        default="time",
        description="Has no effect since version 0.1: remove it. Accepted so that configs which have it load.",
    )


class Retry(Section):
    limit_s: Duration = Field(
        default=600.0,
        alias="limit",
        description="How long a temporary failure is retried, with backoff, before the run ends with exit code 6.",
    )


class SpoolSection(Section):
    path: Annotated[str, FilePath()] = Field(
        default=DEFAULT_SPOOL,
        min_length=1,
        description="Folder for changes that strategy `chain` took from the log and has not applied yet. It "
        "must outlive the process: the upstream may no longer have what it holds. On a cluster, driver and "
        "executors must share it.",
    )
    max_size: Annotated[int, BeforeValidator(size_bytes, json_schema_input_type=int | str)] | None = Field(
        default=None, ge=1, description='Largest size of the spool: bytes, or "50GB". Default: no limit.'
    )
    on_full: Literal["stop", "wait"] = Field(
        default="stop",
        description="What happens at `max_size`: `stop` ends the job with exit code 6; `wait` leaves the log in "
        "the upstream until there is room again. Nothing is dropped.",
    )

    @field_validator("path")
    @classmethod
    def _folder(cls, path: str) -> str:
        if re.search(r"[\[\]{}*?]", path):
            raise ValueError("Spark reads [ ] { } * ? in a path as a pattern; name a folder without them")
        return _mounted(path)


class Spark(Section):
    master: str | None = Field(
        default=None, min_length=1, description="Spark master. Default: `local[*]`, unless `remote` is given."
    )
    remote: str | None = Field(default=None, min_length=1, description="Spark Connect address, `sc://host:15002`.")
    conf: dict[str, Annotated[str, BeforeValidator(_setting)]] = Field(
        default_factory=dict, description="Spark settings; they override backfill's own."
    )

    @model_validator(mode="after")
    def _one_place(self) -> "Spark":
        if self.master and self.remote:
            raise ValueError("give master or remote, not both")
        return self

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process, on this machine."""
        return self.remote is None and (self.master or "local").startswith("local")


Event = Literal[
    "caught-up",
    "deadline-at-risk",
    "done",
    "failed",
    "lagging",
    "log-applied",
    "low-headroom",
    "paused",
    "quarantined",
    "resumed",
    "set-aside",
    "snapshot-read",
    "stopped",
]


class Hooks(Section):
    on: list[Event] = Field(
        default_factory=list,
        description="Events at which the command is run: the sink has the snapshot (`snapshot-read`), and what "
        "the log had meanwhile (`log-applied`); the run is `caught-up` with its upstream, or ended as "
        "`done`, `failed` or `stopped`; the job was `paused` or `resumed`; rows were `quarantined`; a table was "
        "`set-aside`; the job is "
        "`lagging`, its lag being over `max_lag`, has `low-headroom`, less than `min_headroom`, or cannot meet "
        "`throttle.finish_by` any more (`deadline-at-risk`).",
    )
    command: list[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list,
        description='Program and arguments, run without a shell: `["./notify.sh"]`. A program with a slash is '
        "relative to the config's folder, like the other paths of a config. It gets the event "
        "as one JSON object on stdin. It must read its secrets itself: this option is stored in the catalog.",
    )
    max_lag_s: Duration | None = Field(
        default=None,
        alias="max_lag",
        gt=0,
        description="The lag over which a job is `lagging`: once, and again only after the lag was within it. "
        "Required for that event.",
    )
    min_headroom_s: Duration | None = Field(
        default=None,
        alias="min_headroom",
        gt=0,
        description="The headroom, the time until the upstream may remove what the job has not read, below which "
        "the job has `low-headroom`: once, and again only after it had more. Required for that event.",
    )
    timeout_s: Duration = Field(
        default=30.0,
        alias="timeout",
        ge=0.1,
        description="How long one run of the command may take before it is killed.",
    )

    @model_validator(mode="after")
    def _both(self) -> "Hooks":
        if bool(self.on) != bool(self.command):
            raise ValueError("give both on and command")
        if ("lagging" in self.on) != (self.max_lag_s is not None):
            raise ValueError('"lagging" in on and max_lag need each other: on = ["lagging"], max_lag = "5m"')
        if ("low-headroom" in self.on) != (self.min_headroom_s is not None):
            raise ValueError(
                '"low-headroom" in on and min_headroom need each other: on = ["low-headroom"], min_headroom = "2h"'
            )
        return self


GuardKind = Literal["sql", "replication-lag", "sessions", "load", "free-disk", "window", "lag"]

_OF_KIND: dict[str, frozenset[str]] = {
    "sql": frozenset({"query", "on", "limit"}),
    "replication-lag": frozenset({"limit"}),
    "sessions": frozenset({"limit"}),
    "load": frozenset({"limit"}),
    "free-disk": frozenset({"path", "limit"}),
    "window": frozenset({"from", "to"}),
    "lag": frozenset({"job", "limit"}),
}
_MAY_LACK = frozenset({"path", "on"})
_OF_SOME_KINDS = frozenset().union(*_OF_KIND.values())
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def _number(value: object) -> float:
    if not isinstance(value, int | float) or value < 0:
        raise ValueError("must be a number, 0 or more")
    return float(value)


def _size(value: object) -> float:
    return float(size_bytes(value))


def _spell_value(value: float) -> str:
    return spell_number(round(value, 2))


_MEASURES: dict[str, tuple[str, Callable[[object], float], Callable[[float], str]]] = {
    "sql": ("the query returned", _number, _spell_value),
    "replication-lag": ("replication lag", duration_s, spell_duration),
    "sessions": ("active sessions:", _number, _spell_value),
    "load": ("load per core", _number, _spell_value),
    "free-disk": ("free disk", _size, spell_size),
    "lag": ("lag of job '{job}'", duration_s, spell_duration),
}
"""By kind: what is measured, how a limit is written, and how a value is shown."""


class GuardSection(Section):
    name: str = Field(
        pattern=JOB_NAME.pattern.join(("^", "$")),
        description="The guard's name, in `status` and `history`: 1 to 63 of `a-z`, `0-9`, `_`, `-`.",
    )
    kind: GuardKind = Field(
        description="What is asked: `sql`, the number that `query` returns; `replication-lag`, the largest lag of "
        "the upstream's standbys, and `sessions`, its active sessions without those of backfill (PostgreSQL); "
        "`load`, this machine's 1-minute load per core; `free-disk`; `window`, the part of the day in which the "
        "job may work; `lag`, of another job of this catalog."
    )
    limit: float | str | None = Field(
        default=None,
        description='Over it the job is held: a number, a duration for lags (`"30s"`), a size for `free-disk` '
        '(`"20GB"`), below which the job is held. Required, except for `window`.',
    )
    rate: float | None = Field(
        default=None,
        ge=0,
        description="Snapshot rows per second that are read while the guard holds the job. Default: the job is "
        "paused.",
    )
    lift: float = Field(
        default=0.8,
        gt=0,
        le=1,
        description="A hold ends once the value is at most this share of the limit; for `free-disk`, at least the "
        "limit divided by it.",
    )
    every_s: Duration = Field(default=5.0, alias="every", ge=0.05, description="How often it is asked.")
    timeout_s: Duration = Field(
        default=5.0,
        alias="timeout",
        ge=0.05,
        description="How long an answer may take. A guard that does not answer twice in a row holds the job.",
    )
    query: str | None = Field(
        default=None,
        min_length=1,
        description="For `sql`: a query for one number, run in a read-only transaction.",
    )
    on: Literal["upstream", "sink"] = Field(default="upstream", description="For `sql`: which side is asked.")
    path: Annotated[str | None, FilePath()] = Field(
        default=None,
        min_length=1,
        description="For `free-disk`: a file or folder on that disk. Default: `job.staging`.",
    )
    begin: str | None = Field(
        default=None, alias="from", description='For `window`: its begin in local time, `"22:00"`.'
    )
    end: str | None = Field(
        default=None, alias="to", description='For `window`: its end in local time, `"06:00"`.'
    )
    job: str | None = Field(default=None, min_length=1, description="For `lag`: the other job.")

    @field_validator("limit", mode="before")
    @classmethod
    def _no_truth_value(cls, limit: object) -> object:
        if isinstance(limit, bool):
            raise ValueError("must be a number, a duration or a size")
        return limit

    @model_validator(mode="after")
    def _of_its_kind(self) -> "GuardSection":
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        given = {names[name] for name in self.model_fields_set} & _OF_SOME_KINDS
        known = _OF_KIND[self.kind]
        if given - known:
            raise ValueError(f'kind "{self.kind}" has no {", ".join(sorted(given - known))}')
        if lacks := known - given - _MAY_LACK:
            raise ValueError(f'kind "{self.kind}" needs {", ".join(sorted(lacks))}')
        if self.kind == "window":
            for at in (self.begin, self.end):
                if not _TIME.fullmatch(str(at)):
                    raise ValueError('from and to must be times of the day, like "22:00"')
            if self.begin == self.end:
                raise ValueError("from and to must differ")
        else:
            try:
                _MEASURES[self.kind][1](self.limit)
            except ValueError as error:
                raise ValueError(f"limit: {error}") from None
        return self

    @property
    def guard(self) -> Guard:
        """As a value."""
        return Guard(self.name, self._rule, self.rate)

    @property
    def _rule(self) -> Rule:
        if self.kind == "window":
            return Window(*(60 * int(at[:2]) + int(at[3:]) for at in (self.begin or "", self.end or "")))
        what, read, spell = _MEASURES[self.kind]
        limit = read(self.limit)
        return Limited(what.format(job=self.job), limit, self.lift, spell, self.kind == "free-disk")

    @property
    def side(self) -> Literal["upstream", "sink"]:
        """Which side it asks, if it asks one."""
        return self.on if self.kind == "sql" else "upstream"

    @property
    def asks_systems(self) -> bool:
        """Whether it asks upstream or sink."""
        return self.kind in ("sql", "replication-lag", "sessions")


class JobFile(Section):
    """The whole file. `upstream` and `sink` are checked by their connectors' models."""

    job: Job
    upstream: dict[str, Any]
    tables: list[Table] = Field(min_length=1)
    derived: list[DerivedSection] = Field(
        default_factory=list,
        description="Tables of the sink that equal a SELECT over the job's tables at every commit.",
    )
    sink: dict[str, Any]
    transform: Transform = Transform()
    barrier: Barrier = Barrier()
    throttle: Throttle = Throttle()
    catch_up: CatchUp = CatchUp()
    retry: Retry = Retry()
    spool: SpoolSection = SpoolSection()
    spark: Spark = Spark()
    hooks: Hooks = Hooks()
    guards: list[GuardSection] = Field(
        default_factory=list, description="What holds the job before its source or machine suffers."
    )

    @field_validator("guards")
    @classmethod
    def _guards_differ(cls, guards: list[GuardSection]) -> list[GuardSection]:
        if len({guard.name for guard in guards}) < len(guards):
            raise ValueError("two guards have one name")
        return guards
