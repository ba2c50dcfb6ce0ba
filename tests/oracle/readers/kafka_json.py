"""A Kafka record whose value is JSON, read on its own: docs/kafka.md."""

from dataclasses import dataclass

from oracle import plain
from oracle.readers import json_text
from oracle.readers.kinds import Doubts, Kind, No


@dataclass(frozen=True)
class Record:
    """What is right for a record. row: its columns; None: it must be refused, for `why`.

    may_be_refused: why refusing is right too, though the row can be told.
    """

    row: plain.Row | None
    why: str = ""
    may_be_refused: tuple[str, ...] = ()


def event(columns: dict[str, Kind], raw: bytes | None) -> Record:
    """A tombstone is a row of NULLs."""
    if raw is None:
        return Record(dict.fromkeys(columns))
    doubts: Doubts = []
    try:
        token = json_text.parsed(raw)
        json_text.well_formed(token)
        row = json_text.row_of(columns, token, doubts)
    except No as exc:
        return Record(None, str(exc))
    return Record(row, "", tuple(doubts))
