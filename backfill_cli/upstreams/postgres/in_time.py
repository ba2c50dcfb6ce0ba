"""Statements that the server ends once they have taken as long as the config lets them (`chunk_time`)."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from backfill_cli.cdc.bounded import TimedOut
from backfill_cli.errors import UsageError, in_config
from backfill_cli.model.position import Cursor
from backfill_cli.model.units import spell_duration
from backfill_cli.upstreams.postgres.types import Column

_CANCELED = "57014"
"""The SQLSTATE of a statement that was ended: for its time, or because somebody asked for it."""


@contextmanager
def in_time(limit_ms: int) -> Iterator[None]:
    """A statement inside that its server ended for its time, this limit, raises TimedOut.

    One that was ended before that was ended by somebody, and raises the driver's error.
    """
    began_s = time.monotonic()
    try:
        yield
    except Exception as exc:
        states = (getattr(one, "sqlstate", None) for one in (exc, exc.__cause__))  # the driver's, or ours of it
        state = str(next(filter(None, states), "")).strip("\0")
        if state == _CANCELED and (time.monotonic() - began_s) * 1000 >= limit_ms:
            raise TimedOut from exc
        raise


def too_slow(table: str, key: Sequence[Column], after: Cursor | None, limit_ms: int) -> UsageError:
    """The error for a statement that takes too long for one row, the one after this key."""
    texts = [] if after is None else json.loads(str(after))
    shown = ", ".join(f"{column.name} = {text}" for column, text in zip(key, texts, strict=False))
    row = f"the one row after {shown}" if shown else "the first row alone"
    return UsageError(
        f"table {table!r}: reading {row} takes longer than upstream.chunk_time, "
        f"{spell_duration(limit_ms / 1000)}: the server ended the statement",
        in_config("set a longer upstream.chunk_time, or remove it"),
    )
