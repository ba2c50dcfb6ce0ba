"""Spool entries for tests; their positions are counts of changes in one log."""

from pathlib import Path

from backfill_cli.contracts import SpoolEntry, TakenTable
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.model.plan import ChangeWindow, StagedFile
from backfill_cli.model.position import START, Position


def at(place: int) -> Position:
    return Position.of({"log": place}) if place else START


def entry(number: int, after: int, up_to: int, attempt: str = "0123456789ab", size: int = 5) -> SpoolEntry:
    """An entry of one table, `t`, with one file of the given size."""
    window = ChangeWindow(at(after), at(up_to), after, up_to, 1)
    table = TakenTable((StagedFile("t.parquet", size),), changes=up_to - after)
    return SpoolEntry(number, attempt, window, {"t": table})


def sealed(spool: Spool, made: SpoolEntry) -> SpoolEntry:
    """The entry with its file in the spool."""
    folder: Path = spool.place(made.name)
    folder.mkdir()
    for table in made.tables.values():
        for file in table.files:
            (folder / file.path).write_bytes(b"x" * file.size_bytes)
    return spool.seal(made)
