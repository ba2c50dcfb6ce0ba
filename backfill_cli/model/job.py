"""A job's states and control: which arrow exists and why, and what a command changes."""

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


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the inbox. rate: rows/s for `throttle`, None for no limit. by: who requested it, for display."""

    id: int
    verb: Verb
    by: str
    at_ms: int
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """What was commanded, kept in the catalog so that it survives every runner.

    paused_since_ms: the epoch of the barrier at which the pause took effect. rate: snapshot rows per second; None:
    no limit; 0: follow without reading the snapshot. pause_all: while paused, the log is not taken into the spool
    either (strategy chain).
    """

    paused_by: str | None = None
    paused_since_ms: int | None = None
    rate: float | None = None
    stop: bool = False
    pause_all: bool = False

    @property
    def paused(self) -> bool:
        return self.paused_by is not None


def apply_command(control: Control, command: Command, epoch: int) -> Control:
    """The control after one command, which takes effect at the barrier `epoch`.

    A repeated command changes nothing, so the first author is kept.
    """
    match command.verb:
        case Verb.PAUSE | Verb.PAUSE_ALL:
            control = replace(control, pause_all=control.pause_all or command.verb is Verb.PAUSE_ALL)
            if control.paused:
                return control
            return replace(control, paused_by=command.by, paused_since_ms=epoch)
        case Verb.RESUME:
            return replace(control, paused_by=None, paused_since_ms=None, stop=False, pause_all=False)
        case Verb.THROTTLE:
            return replace(control, rate=command.rate)
        case Verb.STOP:
            return replace(control, stop=True)


@dataclass(frozen=True, slots=True)
class Mutations:
    """What a barrier carries: at most one mutation of each kind, already folded into `control`."""

    control: Control
    commands: tuple[Command, ...] = ()

    @property
    def verbs(self) -> str:
        """`pause, throttle`, as the ledger has them."""
        return ", ".join(command.verb for command in self.commands)


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
    def taking(cls, commands: tuple[Command, ...], prev_ms: int, now_ms: int, control: Control) -> "Barrier":
        """The barrier after `prev_ms` at which these commands act. control: in force until then."""
        barrier = cls.next(prev_ms, now_ms, Mutations(control, commands))
        for command in commands:
            control = apply_command(control, command, barrier.epoch)
        return replace(barrier, mutations=Mutations(control, commands))
