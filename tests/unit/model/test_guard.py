"""Guards: what a value means, and what follows for a job under a person's commands and kills, by an oracle."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.guard import Guard, Level, Limited, Order, Window, decided, removed
from backfill_cli.model.job import Command, Control, Verb, apply_command

SPELL = "{:g}".format
RULE = Limited("load", 10.0, 0.8, SPELL)
GUARDS = (Guard("stops", RULE), Guard("slows", RULE, rate=50.0), Guard("trickles", RULE, rate=5.0))


def command(order: Order, number: int = 1) -> Command:
    return Command(number, order.verb, order.by, number, order.rate, order.guard, order.lifts)


def followed(control: Control, guard: Guard, value: float) -> Control:
    order = decided(guard, guard.rule.judged(value), control)
    return control if order is None else apply_command(control, command(order), 7)


@dataclass
class Person:
    """The oracle: what the rules say in prose, with sets and plain ifs. limits of all guards: 10, lifted at 8."""

    paused: bool = False
    rate: float | None = None
    holding: set[str] = field(default_factory=set)
    overridden: set[str] = field(default_factory=set)

    def sees(self, name: str, value: float) -> None:
        if name in self.overridden:
            if value <= 10:
                self.overridden.remove(name)
        elif name in self.holding:
            if value <= 8:
                self.holding.remove(name)
        elif value > 10:
            self.holding.add(name)

    def types(self, verb: Verb, rate: float | None) -> None:
        if verb is Verb.PAUSE:
            self.paused = True
        elif verb is Verb.RESUME:
            self.paused = False
            self.overridden |= self.holding
            self.holding = set()
        else:
            self.rate = rate
            slowing = self.holding - {"stops"}
            self.overridden |= slowing
            self.holding -= slowing

    def effective(self) -> tuple[bool, float | None]:
        rates = [self.rate] if self.rate is not None else []
        rates += [50.0] if "slows" in self.holding else []
        rates += [5.0] if "trickles" in self.holding else []
        return self.paused or "stops" in self.holding, min(rates) if rates else None


VALUES = st.sampled_from([0.0, 7.9, 8.0, 8.1, 9.9, 10.0, 10.1, 40.0])
SIGHTS = st.tuples(st.sampled_from(GUARDS), VALUES)
TYPED = st.one_of(
    st.tuples(st.just(Verb.PAUSE), st.none()),
    st.tuples(st.just(Verb.RESUME), st.none()),
    st.tuples(st.just(Verb.THROTTLE), st.sampled_from([None, 0.0, 4.0, 20.0, 90.0])),
)


@given(st.lists(st.one_of(SIGHTS, TYPED, st.just("kill")), max_size=40), st.data())
def test_a_hold_is_never_a_persons_pause_or_rate(acts: list[object], data: st.DataObject) -> None:
    """Commands wait in the inbox for a while, a kill keeps both; effective pause and rate are the oracle's."""
    control, inbox, oracle = Control(), [], Person()
    for number, act in enumerate(acts, 1):
        asked = control
        for one in inbox:
            asked = apply_command(asked, one, number)
        if isinstance(act, tuple) and isinstance(act[0], Guard):
            guard, value = act
            order = decided(guard, guard.rule.judged(value), asked)
            inbox += [] if order is None else [command(order, number)]
            oracle.sees(guard.name, value)
        elif isinstance(act, tuple):
            verb, rate = act
            inbox.append(Command(number, verb, "ann", number, rate))
            oracle.types(verb, rate)
        if data.draw(st.booleans()):  # a barrier, or a runner that finds the inbox as the dead one left it
            for one in inbox:
                control = apply_command(control, one, number)
            inbox = []
            assert (control.paused, control.pace) == oracle.effective()
            assert control.rate == oracle.rate, "a hold never is a person's rate"
            assert (control.paused_by == "ann") == oracle.paused, "a hold never is a person's pause"
            assert control.pace is None or control.rate is None or control.pace <= control.rate


@given(st.lists(VALUES, max_size=20))
def test_a_command_that_is_applied_twice_changes_nothing(values: list[float]) -> None:
    """The guards' thread may fold in a command that a barrier has just taken."""
    control = Control()
    for value in values:
        for guard in GUARDS:
            order = decided(guard, guard.rule.judged(value), control)
            if order is not None:
                control = apply_command(control, command(order), 7)
                assert apply_command(control, command(order), 8) == control


def test_the_dead_band_keeps_what_is_in_force() -> None:
    levels = [RULE.judged(value).level for value in (10.1, 10.0, 8.1, 8.0)]
    assert levels == [Level.OVER, Level.BETWEEN, Level.BETWEEN, Level.CLEAR]
    held = followed(Control(), GUARDS[0], 11.0)
    assert followed(held, GUARDS[0], 9.0) == held
    assert followed(held, GUARDS[0], 8.0) == Control()


def test_a_hold_says_by_whom_why_and_what_ends_it() -> None:
    (hold,) = followed(Control(), GUARDS[0], 45.0).holds
    assert hold.by == "guard 'stops': load 45, over 10"
    assert hold.lifts == "lifted at 8 or less"
    assert hold.since_ms == 7


def test_what_must_not_run_out_is_held_below_its_limit_and_lifted_above_the_band() -> None:
    free = Limited("free disk", 8.0, 0.8, SPELL, least=True)
    told = [free.judged(value) for value in (7.9, 8.0, 9.9, 10.0)]
    assert [one.level for one in told] == [Level.OVER, Level.BETWEEN, Level.BETWEEN, Level.CLEAR]
    assert told[0].said == "free disk 7.9, below 8"
    assert told[0].lifts == "lifted at 10 or more"


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 1439))
def test_a_window_holds_outside_of_it_also_over_midnight(begin: int, end: int, now: int) -> None:
    inside = begin <= now < end if begin <= end else now >= begin or now < end
    assert (Window(begin, end).judged(now).level is Level.CLEAR) == inside


def test_a_window_says_when_the_job_may_work_again() -> None:
    told = Window(22 * 60, 6 * 60).judged(7 * 60 + 12)
    assert told.said == "it is 07:12, outside 22:00 to 06:00"
    assert told.lifts == "lifted at 22:00"


def test_one_that_cannot_be_asked_holds_the_job_and_says_so_whatever_it_held_it_for() -> None:
    guard = GUARDS[0]
    held = followed(Control(), guard, 45.0)
    for control, since_ms in ((Control(), 9), (held, 7)):
        order = decided(guard, guard.unanswered("connection refused"), control)
        assert order is not None
        (hold,) = apply_command(control, command(order, 9), 9).holds
        assert hold.by == "guard 'stops': cannot be asked: connection refused"
        assert hold.lifts == "lifted at 8 or less, once it answers"
        assert hold.since_ms == since_ms
        again = decided(guard, guard.unanswered("timeout"), Control(holds=(hold,)))
        assert again is None, "each attempt can fail in another way"
        answers = decided(guard, RULE.judged(11.0), Control(holds=(hold,)))
        assert answers is not None
        assert answers.by == "guard 'stops': load 11, over 10"


def test_a_guard_whose_rate_was_changed_holds_by_the_new_one_since_it_held() -> None:
    held = followed(Control(), GUARDS[0], 11.0)
    slowed = followed(held, Guard("stops", RULE, rate=9.0), 9.0)
    assert (slowed.paused, slowed.pace, slowed.holds[0].since_ms) == (False, 9.0, 7)


def test_what_a_guard_left_that_the_config_has_no_longer_is_lifted() -> None:
    held = followed(followed(Control(overridden=("old",)), GUARDS[0], 11.0), GUARDS[1], 11.0)
    orders = removed(frozenset({"slows"}), held)
    assert {order.guard for order in orders} == {"stops", "old"}
    for order in orders:
        held = apply_command(held, command(order), 9)
    assert [hold.guard for hold in held.holds] == ["slows"]
    assert held.overridden == ()


def test_a_hold_that_comes_after_a_person_overrode_its_guard_changes_nothing() -> None:
    control = Control(overridden=("stops",))
    assert apply_command(control, Command(1, Verb.HOLD, "guard", 1, None, "stops"), 7) == control


def test_each_guard_that_pauses_a_job_says_what_ends_its_hold() -> None:
    both = followed(followed(Control(), GUARDS[0], 11.0), Guard("too", RULE), 12.0)
    assert f"by {both.pauser}{both.ends}" == (
        "by guard 'stops': load 11, over 10; lifted at 8 or less; "
        "and by guard 'too': load 12, over 10; lifted at 8 or less"
    )
    assert apply_command(both, Command(1, Verb.PAUSE, "ann", 1), 7).ends == "", "a person's pause ends by resume"
