"""What a guard's value means, and what follows for the job that it guards: pure, like the strategies.

A guard holds a job (`Verb.HOLD`) once its value is over its limit, and lifts that (`Verb.LIFT`) once the value is
below a dead band. A person's `resume` or `throttle` overrides a hold until the value was within its limit once.
Both verbs are commands like every other: durable, taken at a barrier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from backfill_cli.model.job import Control, Verb


class Level(StrEnum):
    OVER = "over"
    BETWEEN = "between"  # within the limit, not within the dead band: whatever is in force stays
    CLEAR = "clear"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a guard said. said: its value and limit, in words. lifts: what ends a hold, in words."""

    level: Level
    said: str
    lifts: str = ""


@dataclass(frozen=True, slots=True)
class Limited:
    """A value with a limit: at most that or, for what must not run out, at least that.

    what: is measured, in words. lift: share of the limit (its inverse, for a least value) at which a hold ends.
    spell: a value in words.
    """

    what: str
    limit: float
    lift: float
    spell: Callable[[float], str]
    least: bool = False

    @property
    def lifted(self) -> float:
        return self.limit / self.lift if self.least else self.limit * self.lift

    @property
    def ends(self) -> str:
        return f"lifted at {self.spell(self.lifted)} or {'more' if self.least else 'less'}"

    def judged(self, value: float) -> Reading:
        over = value < self.limit if self.least else value > self.limit
        clear = value >= self.lifted if self.least else value <= self.lifted
        level = Level.OVER if over else Level.CLEAR if clear else Level.BETWEEN
        below = "below" if self.least else "over"
        side = below if over else "not " + below
        return Reading(level, f"{self.what} {self.spell(value)}, {side} {self.spell(self.limit)}", self.ends)


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the day in which the job works, in minutes since midnight; it may span midnight."""

    begin: int
    end: int

    @property
    def ends(self) -> str:
        return f"lifted at {_spell_time(self.begin)}"

    def judged(self, value: float) -> Reading:
        """value: minutes since midnight, of this machine's local time."""
        since_begin, length = (value - self.begin) % 1440, (self.end - self.begin) % 1440
        inside = since_begin < length
        hours = f"{_spell_time(self.begin)} to {_spell_time(self.end)}"
        now = f"it is {_spell_time(int(value))}, {'within' if inside else 'outside'} {hours}"
        return Reading(Level.CLEAR if inside else Level.OVER, now, self.ends)


def _spell_time(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


Rule = Limited | Window


@dataclass(frozen=True, slots=True)
class Guard:
    """rate: rows/s that it allows while it holds the job; None: it pauses it."""

    name: str
    rule: Rule
    rate: float | None = None

    def unanswered(self, why: str) -> Reading:
        """Where it cannot be asked the job is held, too: what it guards may be what does not answer."""
        return Reading(Level.OVER, f"cannot be asked: {why}", f"{self.rule.ends}, once it answers")


@dataclass(frozen=True, slots=True)
class Order:
    """The command that a guard posts. by: the guard, and its reason."""

    verb: Verb
    guard: str
    by: str
    rate: float | None = None
    lifts: str = ""


def decided(guard: Guard, reading: Reading, asked: Control) -> Order | None:
    """What a guard commands now, if anything. asked: the control once the commands that wait have been taken."""
    by = f"guard '{guard.name}': {reading.said}"
    hold = asked.hold_of(guard.name)
    if guard.name in asked.overridden:
        return None if reading.level is Level.OVER else Order(Verb.LIFT, guard.name, by)
    if hold is not None and reading.level is Level.CLEAR:
        return Order(Verb.LIFT, guard.name, by)
    changed = hold is not None and (hold.rate, hold.lifts) != (guard.rate, reading.lifts)
    if changed or (hold is None and reading.level is Level.OVER):
        return Order(Verb.HOLD, guard.name, by, guard.rate, reading.lifts)
    return None


def removed(names: frozenset[str], control: Control) -> tuple[Order, ...]:
    """Lifts what guards hold or left behind that the config has no longer. names: of those that it has."""
    gone = (*(hold.guard for hold in control.holds), *control.overridden)
    return tuple(
        Order(Verb.LIFT, name, f"guard '{name}': no longer in the config") for name in gone if name not in names
    )
