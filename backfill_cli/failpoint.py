"""Named points at which a test kills the process, as `kill -9` would. Does nothing unless a point is named.

`BACKFILL_FAILPOINT=name` kills at the first hit of that point, `name:3` at the third. The simulation replaces the
handler by one that raises.
"""

import os
import signal
from collections.abc import Callable

_hits: dict[str, int] = {}


def _kill_when_named(name: str) -> None:
    wanted, _, nth = os.environ.get("BACKFILL_FAILPOINT", "").partition(":")
    if wanted != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] == int(nth or 1):
        os.kill(os.getpid(), signal.SIGKILL)


handler: Callable[[str], None] = _kill_when_named


def hit(name: str) -> None:
    """Passes the point `name`; called at every durable step of the commit protocol."""
    handler(name)
