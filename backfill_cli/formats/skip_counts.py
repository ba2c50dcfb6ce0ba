"""How many records of what is being staged were skipped, told by the workers that read them.

A worker writes what it skipped of a part into a file of its own, once it has read the part. A part that is read
again, after a failure or because Spark computes it twice, replaces its file. Where a table is read anew (Spark
nets what workers could not, a column was added), only the newest reading of it counts.
"""

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from backfill_cli.formats.parquet_writer import writing
from backfill_cli.model.skipped import added


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reading of a table tells what it skips. number: it is newer than those with a smaller one."""

    folder: str
    table: str
    number: int

    def tell(self, part: str, skipped: Mapping[str, int]) -> None:
        """Runs in a worker: what was skipped of a part. Raises Transient if it cannot be written."""
        there = {kind: number for kind, number in skipped.items() if number}
        if not there:
            return
        path = f"{self.folder}/{self.number}-{part}"
        fresh = f"{path}.{uuid.uuid4().hex}.new"  # two workers can read a part at once
        with writing(path):
            Path(fresh).write_text(json.dumps({"table": self.table, "number": self.number, "skipped": there}))
            os.replace(fresh, path)


_PLACES: ContextVar[tuple[str, Iterator[int]] | None] = ContextVar("skip_counts", default=None)


@contextmanager
def told_in(folder: Path) -> Iterator[None]:
    """Readings that begin inside the block tell in this folder what they skip."""
    token = _PLACES.set((str(folder), count()))
    try:
        yield
    finally:
        _PLACES.reset(token)


def place(table: str) -> Place | None:
    """Where a new reading of a table tells what it skips; None: nowhere."""
    places = _PLACES.get()
    return None if places is None else Place(places[0], table, next(places[1]))


def skipped_in(folder: Path) -> Mapping[str, int]:
    """What was skipped, by kind, as the newest reading of each table has told."""
    told = [json.loads(file.read_bytes()) for file in folder.glob("*") if file.suffix != ".new"]
    newest: Counter[str] = Counter()
    for one in told:
        newest[one["table"]] = max(newest[one["table"]], one["number"])
    found: Mapping[str, int] = {}
    for one in told:
        if one["number"] == newest[one["table"]]:
            found = added(found, one["skipped"])
    return found
