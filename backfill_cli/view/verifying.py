"""What `verify` does and how far it is, on stderr: one line, redrawn, on a terminal; else a line every 10 s."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backfill_cli.model.units import spell_duration
from backfill_cli.model.verify import VerifyProgress, VerifyReport
from backfill_cli.view.console import interactive, say
from backfill_cli.view.live import LINE_S
from backfill_cli.view.text import shown_lines
from backfill_cli.view.verdict import fix_lines

CLEARED = "\r\x1b[K"


def progress_text(at: VerifyProgress) -> str:
    """`orders: 42%, at least 3s left: comparing table orders`: what a narrow terminal cuts off comes last.

    At least: rows that differ are searched for again, and compared again after a fix. These steps report their
    own share, so that the share of the whole never goes back.
    """
    of = " of this step" if at.alone else ""
    told = [f"{min(at.share, 0.99) * 100:.0f}%{of}"] if at.share else []
    if at.left_s is not None and at.left_s >= 1:
        told.append(f"at least {spell_duration(at.left_s)} left")
    return ": ".join([at.job, *([", ".join(told)] if told else []), at.doing])


def holds_text(at: VerifyProgress) -> str:
    """What is held up, and for how long; the lines that follow say how much is left."""
    return f"{at.job}: until this verify has ended (Ctrl-C ends it): {at.holds}"


@contextmanager
def shown() -> Iterator[Callable[[VerifyProgress], None]]:
    """Yields the function that takes the progress; a drawn line is gone at the end."""
    if not interactive(sys.stderr):
        yield Lines(time.monotonic).tell
        return
    line = Drawn()
    try:
        yield line.tell
    finally:
        line.clear()


class Lines:
    """A plain line when a new step begins, and every 10 s. now_s: a monotonic clock."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._told = ("", 0.0)
        self._holds = ""
        self._turn = threading.Lock()

    def tell(self, at: VerifyProgress) -> None:
        with self._turn:
            if at.holds != self._holds:
                self._holds = at.holds
                say(holds_text(at))
            doing, told_s = self._told
            if at.doing == doing and self._now_s() - told_s < LINE_S:
                return
            self._told = (at.doing, self._now_s())
            say(progress_text(at))


class Drawn:
    """One line of a terminal, overwritten each time; cut at the terminal's width."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._holds = ""

    def tell(self, at: VerifyProgress) -> None:
        import shutil

        with self._turn:
            if at.holds != self._holds:
                self._holds = at.holds
                print(CLEARED, end="", file=sys.stderr)
                say(holds_text(at))
            width = shutil.get_terminal_size().columns - 1
            print(f"{CLEARED}{shown_lines(progress_text(at))[:width]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        with self._turn:
            print(CLEARED, end="", file=sys.stderr, flush=True)


def tell_before(report: VerifyReport) -> None:
    """Print what is about to be changed."""
    if interactive(sys.stderr):
        print(CLEARED, end="", file=sys.stderr)
    for line in fix_lines(report, "is about to be fixed"):
        say(line)
