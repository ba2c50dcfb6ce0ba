"""A signal that unwinds a start waits for the end of what must not be cut off: the catalog's transaction.

Cut off between two lines, a lock stays held and a file attached, and the way out needs both.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Blocks:
    """Those that the main thread is in: Python runs signal handlers there. due: the exit code after them."""

    depth = 0
    due: int | None = None


@contextmanager
def whole() -> Iterator[None]:
    """The block is not cut off: what `unwind` is told meanwhile is raised at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Blocks.depth += 1
    try:
        yield
    finally:
        _Blocks.depth -= 1
        if not _Blocks.depth and _Blocks.due is not None:
            code, _Blocks.due = _Blocks.due, None
            raise SystemExit(code)


def unwind(code: int) -> None:
    """Raises SystemExit with this code, at once or at the end of a `whole` block. Called by a signal handler."""
    if _Blocks.depth:
        _Blocks.due = code
    else:
        raise SystemExit(code)
