"""Asks an upstream, beside the loop, how long it keeps what the job has not read yet. It decides nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from backfill_cli.engine.job.headroom import Ask, answer
from backfill_cli.model.headroom import Headroom, Unread

FIRST_S, EVERY_S = 2.0, 30.0
"""A run that ends at once asks nothing; each asking is a connection more, for some milliseconds."""

END_S = 5.0
"""Longer than an upstream that is silent is waited for."""


@contextmanager
def asked(
    ask: Ask | None, unread: Callable[[], Unread], tell: Callable[[Headroom | None], None]
) -> Iterator[None]:
    """Inside the block, `tell` is given the answers, in a thread of their own: no barrier waits for one."""
    if ask is None:
        yield
        return
    over = threading.Event()

    def go_on() -> None:
        wait_s = FIRST_S
        try:
            while not over.wait(wait_s):
                tell(answer(ask, unread()))
                wait_s = EVERY_S
        except Exception:
            tell(Headroom.unknown("asking for it ended with an error: see the log"))
            raise

    thread = threading.Thread(target=go_on, name="headroom", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(END_S)
