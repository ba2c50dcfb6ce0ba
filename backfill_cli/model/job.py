"""A job's states and control: which arrow exists and why, and what a command changes."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum


class JobState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    DONE = "done"


S = JobState

TRANSITIONS: dict[tuple[JobState, JobState], str] = {
    (S.STARTING, S.RUNNING): "a runner holds the job and has recovered",
    (S.STARTING, S.PAUSED): "a runner took over a paused job: it stays paused",
    (S.STARTING, S.STOPPING): "a stop was requested before the first commit",
    (S.STARTING, S.FAILED): "recovery found an error",
    (S.STARTING, S.STARTING): "the previous runner died while starting",
    (S.RUNNING, S.PAUSING): "a pause was requested",
    (S.RUNNING, S.PAUSED): "a pause was requested",
    (S.RUNNING, S.STOPPING): "a stop was requested, or a signal received",
    (S.RUNNING, S.DONE): "the --until condition was met",
    (S.RUNNING, S.FAILED): "an error that a retry does not fix",
    (S.RUNNING, S.STARTING): "the previous runner died; a new one takes over",
    (S.PAUSING, S.PAUSED): "a pause was requested, and the current commit is complete",
    (S.PAUSING, S.RUNNING): "a resume came before the next commit",
    (S.PAUSING, S.STOPPING): "a stop overtook the pause",
    (S.PAUSING, S.FAILED): "the current commit failed",
    (S.PAUSING, S.STARTING): "the previous runner died; a new one takes over",
    (S.PAUSED, S.RUNNING): "a resume was taken",
    (S.PAUSED, S.STOPPING): "a stop was requested",
    (S.PAUSED, S.FAILED): "the upstream's identity has changed",
    (S.PAUSED, S.STARTING): "a new runner takes over the paused job",
    (S.STOPPING, S.STOPPED): "the last commit is complete",
    (S.STOPPING, S.RUNNING): "a resume came before the last commit was complete",
    (S.STOPPING, S.FAILED): "the last commit failed",
    (S.STOPPING, S.STARTING): "the previous runner died while stopping; a new one was started",
    (S.STOPPED, S.STARTING): "started or resumed again",
    (S.FAILED, S.STARTING): "started or resumed again",
    (S.DONE, S.STARTING): "started again to follow the upstream",
}

ENDED = frozenset({S.STOPPED, S.FAILED, S.DONE})


def may_become(now: JobState, then: JobState) -> bool:
    """Whether the arrow exists. Staying in a state is always allowed."""
    return now == then or (now, then) in TRANSITIONS


class Phase(StrEnum):
    SNAPSHOT = "snapshot"
    LOG_STORE = "log-store"
    UPSTREAM = "upstream"


class Verb(StrEnum):
    PAUSE = "pause"
    PAUSE_ALL = "pause-all"
    RESUME = "resume"
    THROTTLE = "throttle"
    STOP = "stop"
    REFILL = "refill"
    CANCEL_REFILL = "cancel-refill"
    HOLD = "hold"
    LIFT = "lift"
    SET = "set"
    ADD = "add"
    REMOVE = "remove"
    PUT_BACK = "put-back"


OF_RUNS = frozenset({Verb.ADD, Verb.REMOVE, Verb.PUT_BACK})
"""Commands that only a run can carry out."""

OF_REFILLS = frozenset({Verb.REFILL, Verb.CANCEL_REFILL})
OF_GUARDS = frozenset({Verb.HOLD, Verb.LIFT})
REDEFINES = frozenset({Verb.SET, Verb.ADD, Verb.REMOVE, Verb.PUT_BACK})
"""Commands after which the job has another definition; the others only change its control."""
OF_TABLES = REDEFINES | {Verb.THROTTLE}
"""Commands that can be of one table."""


def of_table(table: str) -> str:
    """The payload of a throttle of one table."""
    return json.dumps({"table": table}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the inbox. by: who requested it, for display.

    rate: rows/s for `throttle`, None for no limit; for `hold`, None to pause. guard: whose hold it is. lifts: what
    ends that, for display. payload: what it says beside that, by verb: of a refill its id; of what redefines the
    job a `change.Change` as JSON; of a throttle of one table that, as `of_table` writes it.
    """

    id: int
    verb: Verb
    by: str
    at_ms: int
    rate: float | None = None
    guard: str = ""
    lifts: str = ""
    payload: str = ""

    @property
    def table(self) -> str:
        """The table that joins or leaves the job, or is throttled; empty for a command of all tables.

        Of derived tables all their names, with a comma between them.
        """
        told = json.loads(self.payload) if self.verb in OF_TABLES and self.payload else {}
        return ", ".join(self.derived) or str(told.get("table", ""))

    @property
    def derived(self) -> tuple[str, ...]:
        """The derived tables that join, change or leave the job."""
        told = json.loads(self.payload) if self.verb in OF_TABLES and self.payload else {}
        return tuple(told.get("derived") or ())

    @property
    def said(self) -> str:
        """`pause`, `add public.refunds`, `add --derived revenue --replace`; as it was typed."""
        verb = Verb.REFILL if self.verb is Verb.PUT_BACK else self.verb
        again = " --replace" if verb is Verb.ADD and json.loads(self.payload or "{}").get("again") else ""
        named = "".join(f" --derived {one}" for one in self.derived) or f" {self.table}"
        return f"{verb}{named}".rstrip() + again


@dataclass(frozen=True, slots=True)
class Hold:
    """A guard's pause or throttle. rate: None for a pause. by: the guard, and its reason. since_ms: the epoch of
    the barrier at which it took effect. lifts: what ends it, in words."""

    guard: str
    by: str
    since_ms: int
    rate: float | None = None
    lifts: str = ""

    @property
    def pauses(self) -> bool:
        return self.rate is None


@dataclass(frozen=True, slots=True)
class Control:
    """What was commanded, kept in the catalog so that it survives every runner.

    paused_by, paused_since_ms, rate: of people; what is in force is `paused` and `pace`, guards' holds included.
    paused_since_ms: the epoch of the barrier at which the pause took effect. rate: snapshot rows per second; None:
    no limit; 0: follow without reading the snapshot. pause_all: while paused, the log is not taken into the spool
    either (strategy chain). holds: each guard's, at most one. overridden: guards whose hold a person ended, until
    their value was within the limit once. tables: people's rates of single tables, by name; the pace binds beside.
    """

    paused_by: str | None = None
    paused_since_ms: int | None = None
    rate: float | None = None
    stop: bool = False
    pause_all: bool = False
    holds: tuple[Hold, ...] = ()
    overridden: tuple[str, ...] = ()
    tables: tuple[tuple[str, float], ...] = ()

    @property
    def rates(self) -> dict[str, float]:
        """Snapshot rows per second of each table that has a rate of its own."""
        return dict(self.tables)

    def pace_of(self, table: str) -> float | None:
        """Rows per second in force for what is read of one table alone; None: no limit."""
        return min((rate for rate in (self.pace, self.rates.get(table)) if rate is not None), default=None)

    def with_rate(self, table: str, rate: float | None) -> "Control":
        """The control with another rate of one table; None: it has none of its own."""
        rates = {**self.rates, table: rate}
        return replace(self, tables=tuple((name, at) for name, at in sorted(rates.items()) if at is not None))

    def of_tables(self, names: Collection[str]) -> "Control":
        """The control without the rates of tables other than these."""
        return replace(self, tables=tuple((name, rate) for name, rate in self.tables if name in names))

    @property
    def paused(self) -> bool:
        """Whether nothing is read now, by a person's command or a guard's hold."""
        return self.paused_by is not None or any(hold.pauses for hold in self.holds)

    @property
    def pace(self) -> float | None:
        """Snapshot rows per second in force: the lowest of a person's rate and the guards'; None: no limit."""
        rates = (self.rate, *(hold.rate for hold in self.holds))
        return min((rate for rate in rates if rate is not None), default=None)

    @property
    def pausing(self) -> Hold | None:
        """The first guard's hold that pauses a job which no person has paused."""
        return None if self.paused_by is not None else next((one for one in self.holds if one.pauses), None)

    @property
    def slowing(self) -> Hold | None:
        """The guard's hold whose rate is in force; None where a person's is as low, or none is."""
        own, pace = self.rate, self.pace
        if pace is None or (own is not None and own <= pace):
            return None
        return next(one for one in self.holds if one.rate == pace)

    @property
    def ends(self) -> str:
        """What ends a pause by guards, after what `pauser` says of the first of them; empty for a person's."""
        if self.pausing is None:
            return ""
        first, *others = [hold for hold in self.holds if hold.pauses]
        return f"; {first.lifts}" + "".join(f"; and by {hold.by}; {hold.lifts}" for hold in others)

    @property
    def since_ms(self) -> int | None:
        """The epoch of the barrier at which the job was paused; None while it is not."""
        return self.paused_since_ms if self.pausing is None else self.pausing.since_ms

    @property
    def pauser(self) -> str | None:
        """Who has paused the job: a person, or a guard with its reason."""
        return self.paused_by if self.pausing is None else self.pausing.by

    def hold_of(self, guard: str) -> Hold | None:
        return next((hold for hold in self.holds if hold.guard == guard), None)


def apply_command(control: Control, command: Command, epoch: int) -> Control:
    """The control after one command, which takes effect at the barrier `epoch`.

    A repeated command changes nothing, so the first author is kept.
    """
    match command.verb:
        case Verb.PAUSE | Verb.PAUSE_ALL:
            control = replace(control, pause_all=control.pause_all or command.verb is Verb.PAUSE_ALL)
            if control.paused_by is not None:
                return control
            return replace(control, paused_by=command.by, paused_since_ms=epoch)
        case Verb.RESUME:
            control = replace(control, paused_by=None, paused_since_ms=None, stop=False, pause_all=False)
            return _overriding(control, control.holds)
        case Verb.THROTTLE if command.table:
            return control.with_rate(command.table, command.rate)
        case Verb.THROTTLE:
            control = replace(control, rate=command.rate)
            return _overriding(control, tuple(hold for hold in control.holds if not hold.pauses))
        case Verb.STOP:
            return replace(control, stop=True)
        case Verb.HOLD:
            return _held(control, command, epoch)
        case Verb.LIFT:
            holds = tuple(hold for hold in control.holds if hold.guard != command.guard)
            overridden = tuple(guard for guard in control.overridden if guard != command.guard)
            return replace(control, holds=holds, overridden=overridden)
        case Verb.REFILL | Verb.CANCEL_REFILL:  # the catalog's table of refills has their effect
            return control
        case Verb.SET | Verb.ADD | Verb.REMOVE | Verb.PUT_BACK:
            return control


def _overriding(control: Control, ended: tuple[Hold, ...]) -> Control:
    """A person ends these holds: their guards hold the job again only once they have been within their limits."""
    holds = tuple(hold for hold in control.holds if hold not in ended)
    return replace(control, holds=holds, overridden=(*control.overridden, *(hold.guard for hold in ended)))


def _held(control: Control, command: Command, epoch: int) -> Control:
    """A guard's hold, unless a person overrides it. Held already: since when stays as it is."""
    if command.guard in control.overridden:
        return control
    hold = Hold(command.guard, command.by, epoch, command.rate, command.lifts)
    before = control.hold_of(command.guard)
    if before is None:
        return replace(control, holds=(*control.holds, hold))
    if (before.rate, before.lifts) == (command.rate, command.lifts):
        return control
    holds = tuple(replace(hold, since_ms=before.since_ms) if one is before else one for one in control.holds)
    return replace(control, holds=holds)


def until_redefined(commands: tuple[Command, ...]) -> tuple[tuple[Command, ...], Command | None]:
    """The commands that only change the control, up to the first one that redefines the job; and that one."""
    at = next((at for at, one in enumerate(commands) if one.verb in REDEFINES), None)
    return (commands, None) if at is None else (commands[:at], commands[at])


def reads_less(before: Control, after: Control) -> bool:
    """Whether less is read under the control `after`: what is being read now is more than it allows."""
    slower = _slower(before.pace, after.pace) or any(
        _slower(before.rates.get(table), rate) for table, rate in after.tables
    )
    return after.stop or (after.paused and not before.paused) or slower


def _slower(before: float | None, after: float | None) -> bool:
    return after is not None and (before is None or after < before)


@dataclass(frozen=True, slots=True)
class Mutations:
    """What a barrier carries: at most one mutation of each kind, already folded into `control`."""

    control: Control
    commands: tuple[Command, ...] = ()

    @property
    def verbs(self) -> str:
        """`pause, throttle`, as the ledger has them; those of derived tables name them."""
        return ", ".join(one.said if one.derived else one.verb for one in self.commands)


@dataclass(frozen=True, slots=True)
class Barrier:
    """The only point where control acts and progress commits.

    prev_ms, epoch: the span it closes, milliseconds of physical time; `epoch` strictly increasing in a job.
    """

    prev_ms: int
    epoch: int
    mutations: Mutations

    @classmethod
    def next(cls, prev_ms: int, now_ms: int, mutations: Mutations) -> "Barrier":
        """The barrier after `prev_ms`: physical time, or one millisecond later if the clock did not advance."""
        return cls(prev_ms, max(now_ms, prev_ms + 1), mutations)

    @classmethod
    def taking(
        cls,
        commands: tuple[Command, ...],
        prev_ms: int,
        now_ms: int,
        control: Control,
        tables: Collection[str] | None = None,
    ) -> "Barrier":
        """The barrier after `prev_ms` at which these commands act. control: in force until then.

        tables: the job's: a command for one that has left has no effect. None: those of the commands are.
        """
        barrier = cls.next(prev_ms, now_ms, Mutations(control, commands))
        for command in commands:
            control = apply_command(control, command, barrier.epoch)
        if tables is not None:
            control = control.of_tables(tables)
        return replace(barrier, mutations=Mutations(control, commands))
