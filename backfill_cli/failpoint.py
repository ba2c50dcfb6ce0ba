"""Named points at which a test ends the process, as `kill -9` would. Nothing happens unless a name is asked for.

`BACKFILL_FAILPOINT=name` kills at the first hit of that point, `name:3` at the third. The simulation puts its own
handler here instead, which raises.
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
    """Pass the point `name`: one call at every durable step of the commit protocol."""
    handler(name)
