"""How many rows workers have read of what is being staged, while they read it: for display only.

A worker writes the number of a part's rows into a file of its own; the driver adds them up. A part that is read
again, after a failure or because Spark computes it twice, does not count twice.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

EVERY_S = 0.5

_NAMES: ContextVar[Iterator[str] | None] = ContextVar("row_counts", default=None)


@contextmanager
def counted_in(folder: Path) -> Iterator[None]:
    """Workers count in this folder the rows of what is read inside the block."""
    token = _NAMES.set(f"{folder}/{number}-" for number in count())
    try:
        yield
    finally:
        _NAMES.reset(token)


def place() -> str | None:
    """Where the parts of one reading are counted: what their files' names begin with. None: nowhere."""
    names = _NAMES.get()
    return None if names is None else next(names)


def rows_in(folder: Path) -> int:
    """The rows counted so far."""
    rows = 0
    with suppress(OSError):  # removed meanwhile, or nothing was read yet
        for file in folder.glob("*[0-9]"):
            with suppress(OSError, ValueError):  # being written, by a worker elsewhere
                rows += int(file.read_bytes())
    return rows


class Count:
    """Runs in a worker: counts the rows of one part. place: see `place`."""

    def __init__(self, place: str | None, part: int) -> None:
        self._file = None if place is None else f"{place}{part}"
        self._rows = self._told = 0
        self._told_s = time.monotonic()
        if self._file is not None:
            with suppress(OSError, ValueError), open(self._file, "rb") as before:
                self._told = int(before.read())

    def add(self, rows: int) -> None:
        self._rows += rows
        now_s = time.monotonic()
        if self._file is None or self._rows <= self._told or now_s - self._told_s < EVERY_S:
            return
        self._told, self._told_s = self._rows, now_s
        with suppress(OSError):  # nothing depends on it
            fresh = f"{self._file}.{os.getpid()}.new"  # two workers can read a part at once
            Path(fresh).write_bytes(b"%d" % self._rows)
            os.replace(fresh, self._file)


def counted(batches: "Iterator[pa.RecordBatch]", rows: Count) -> "Iterator[pa.RecordBatch]":
    """The same batches."""
    for batch in batches:
        rows.add(batch.num_rows)
        yield batch
