"""The thread that takes the log in parallel with the loop while a chain job runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backfill_cli.engine.spool.taker import Taker

LOOK_S = 0.05
"""How often the thread checks whether a take is due: a check costs two comparisons."""


@contextmanager
def taking(taker: Taker, wake: Callable[[], None]) -> Iterator[None]:
    """Takes the log while the `with` block lasts; an entry in progress is finished. wake: called on failure."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(LOOK_S):
            if not taker.beside():
                wake()
                return

    thread = threading.Thread(target=go_on, name="taking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        taker.end()
        thread.join()
