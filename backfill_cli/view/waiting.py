"""What a command is doing until it has its answer: on a terminal one line of stderr, which is then gone."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from backfill_cli.model.limit import Limit
from backfill_cli.model.units import spell_so_far
from backfill_cli.view.console import CLEARED, LINE_S, interactive, say, shown

SILENT_S = 0.5
"""A command that takes less says nothing; one that takes longer says every so often for how long it has."""

Tell = Callable[[Limit | str], None]
One = TypeVar("One")


@contextmanager
def waiting(doing: str) -> Iterator[Tell]:
    """Yields what takes the next thing that the command does, from any thread. Off a terminal, a line says it for
    each 10 s that it takes.
    """
    drawn = interactive(sys.stderr)
    at, over = [(doing, time.monotonic())], threading.Event()

    def tell(next_one: Limit | str) -> None:
        at[0] = Limit.of(next_one).said, time.monotonic()

    def draw() -> None:
        while not over.wait(SILENT_S if drawn else LINE_S):
            what, since_s = at[0]
            for_s = time.monotonic() - since_s
            text = spell_so_far(shown(what), for_s)
            if not drawn:
                say(text)
                continue
            width = shutil.get_terminal_size().columns - 1
            print(f"{CLEARED}{text[:width]}", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=draw, name="waiting", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        over.set()
        thread.join()
        if drawn:
            print(CLEARED, end="", file=sys.stderr, flush=True)


def each(found: Iterable[One], doing: str) -> Iterator[One]:
    """The same, one by one; while each is waited for, the line says what is being done."""
    left = iter(found)
    end = object()
    while True:
        with waiting(doing):
            one = next(left, end)
        if one is end:
            return
        yield one  # type: ignore[misc]
