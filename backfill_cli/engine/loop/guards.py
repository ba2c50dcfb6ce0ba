"""Asks the guards beside the loop, and posts what they decide: commands like every other, taken at a barrier.

Each guard has a thread that asks, and may hang; one more thread looks at their answers, decides and posts. No
barrier waits for either.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from backfill_cli.contracts import Gauge, Unanswered
from backfill_cli.engine.job.gauges import spell_unanswered
from backfill_cli.errors import BackfillError
from backfill_cli.model.guard import Guard, Order, Reading, decided, removed
from backfill_cli.model.job import Command, Control, apply_command
from backfill_cli.model.units import spell_duration

FAILURES = 2
"""A single question without an answer changes nothing: a server restarts, a network drops one packet."""

LOOK_S = 0.05
"""How soon an answer is acted on."""

ENDS_WITHIN_S = 1.0
"""How long the end of a run waits for a question that is being asked."""


@dataclass
class Asked:
    """One guard and its last answer. Its own thread writes `reading` and `failures`, each as a whole.

    since_s: when the question was asked that has no answer yet, None for none. asked: how often it was. acted_on:
    `asked` at its last order: one answer gives one. While a barrier takes it, neither inbox nor control shows it.
    """

    guard: Guard
    gauge: Gauge
    every_s: float
    timeout_s: float
    reading: Reading | None = None
    failures: int = 0
    why: str = ""
    since_s: float | None = None
    asked: int = 0
    acted_on: int = -1

    def ask(self) -> None:
        """Ask once.

        What is no answer, nor a failure that a gauge may have, ends this thread: the guard then cannot be asked
        any more, and says so.
        """
        self.since_s = time.monotonic()
        failures, why = FAILURES, "its thread ended with an error: see the log"
        try:
            self.reading = self.guard.rule.judged(self.gauge.ask())
            failures = 0
        except (BackfillError, Unanswered) as error:
            failures, why = self.failures + 1, spell_unanswered(error)
        finally:
            self.why, self.failures = why, failures
            self.since_s, self.asked = None, self.asked + 1

    def says(self, now_s: float) -> Reading | None:
        """What it says now; None before its first answer, and while a first failure may pass."""
        since_s, failures, why = self.since_s, self.failures, self.why
        if since_s is not None and now_s - since_s > self.timeout_s:
            missed = int((now_s - since_s - self.timeout_s) / self.every_s)
            failures, why = (
                failures + 1 + missed,
                f"no answer within {spell_duration(self.timeout_s)}",
            )
        if failures >= FAILURES:
            return self.guard.unanswered(why)
        return None if failures else self.reading


class Guards:
    """Asks until `end`.

    control: what is in force. waiting: the commands not taken yet. post: puts an order into the inbox.
    """

    def __init__(
        self,
        guards: Sequence[Asked],
        control: Callable[[], Control],
        waiting: Callable[[], Sequence[Command]],
        post: Callable[[Order], None],
    ) -> None:
        self._guards, self._control, self._waiting, self._post = tuple(guards), control, waiting, post
        self._over = threading.Event()

    def lift_removed(self) -> None:
        """What guards hold that the config has no longer is lifted."""
        for order in removed(frozenset(one.guard.name for one in self._guards), self._asked()):
            self._post(order)

    def look(self, now_s: float) -> None:
        """Posts what the last answers demand."""
        for one in self._guards:
            asked, reading = one.asked, one.says(now_s)
            if asked == one.acted_on or reading is None:
                continue
            if (order := decided(one.guard, reading, self._asked())) is not None:
                self._post(order)
                one.acted_on = asked

    def _asked(self) -> Control:
        """The control once what waits is taken.

        What waits is read first: a command that is taken meanwhile is then applied twice, which changes nothing,
        instead of being missed.
        """
        waiting = self._waiting()
        control = self._control()
        for command in waiting:
            control = apply_command(control, command, command.at_ms)
        return control

    def go_on(self) -> None:
        lifted = False
        while not self._over.wait(LOOK_S):
            with suppress(BackfillError):  # the catalog is busy: at the next look
                if not lifted:
                    self.lift_removed()
                    lifted = True
                self.look(time.monotonic())

    def ask_on(self, one: Asked) -> None:
        while not self._over.is_set():
            one.ask()
            self._over.wait(one.every_s)
        with suppress(Exception):
            one.gauge.close()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """They are asked while the block lasts, and nothing is posted after it."""
        if not self._guards and not removed(frozenset(), self._control()):
            yield
            return
        asks = [
            threading.Thread(target=self.ask_on, args=(one,), name="guard", daemon=True) for one in self._guards
        ]
        looks = threading.Thread(target=self.go_on, name="guards", daemon=True)
        for thread in (*asks, looks):
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            looks.join()
            until_s = time.monotonic() + ENDS_WITHIN_S
            for thread in asks:
                thread.join(max(0.0, until_s - time.monotonic()))
