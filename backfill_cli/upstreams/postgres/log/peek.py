"""The slot's messages as the server decodes them, block by block; the slot stays where it is."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import RETRIED, Transient
from backfill_cli.upstreams.postgres.client import asking, lsn_text
from backfill_cli.upstreams.postgres.log.window import TakeRequest
from backfill_cli.upstreams.postgres.types import quoted

if TYPE_CHECKING:
    import psycopg

Block = list[tuple[bytes]]

BLOCK_ROWS, BLOCK_BYTES = 10_000, 8 << 20
"""The most rows fetched at once, and about how many bytes, estimated from the rows before."""


class SlotInUse(Transient):
    """Another session reads the slot: for as long as the server decodes what it asked for."""


def require_flushed(connection: "psycopg.Connection[Any]", up_to: int) -> None:
    """The log is flushed up to there: the server decodes no more than that, and would miss transactions."""
    end = "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END"
    with asking("checking how far its log is flushed"):
        row = connection.execute(f"SELECT {end} >= %s::pg_lsn".encode(), (lsn_text(up_to),)).fetchone()
    if row is None or not row[0]:
        raise Transient(
            f"the log is not yet flushed up to {lsn_text(up_to)}", "wait until the server has written it"
        )


def blocks(
    connection: "psycopg.Connection[Any]", request: TakeRequest, up_to: int, messages: int | None
) -> "Generator[tuple[Block, int], None, None]":
    """The messages in order, up to the last transaction that begins to commit before `up_to`; with each block its
    size in bytes. messages: how many the server decodes, None for all. Raises SlotInUse before the first block.
    """
    import psycopg

    query = (
        "SELECT data FROM pg_catalog.pg_logical_slot_peek_binary_changes"
        "(%s, %s::pg_lsn, %s::int, 'proto_version', '1', 'publication_names', %s)"
    )
    given = (request.slot, lsn_text(up_to), messages, quoted(request.publication))
    doing = f"reading the slot {request.slot!r}"
    with asking(doing), connection.cursor("backfill_log") as cursor:
        try:
            cursor.execute(query, given, binary=True)
            many = min(100, BLOCK_ROWS)
            while block := cursor.fetchmany(many):
                size = sum(len(message) for (message,) in block)
                many = max(1, min(BLOCK_ROWS, BLOCK_BYTES * len(block) // size))
                yield block, size
        except psycopg.errors.ObjectInUse as exc:
            raise SlotInUse(
                f"PostgreSQL, {doing}: {exc.diag.message_primary} (SQLSTATE {exc.sqlstate})",
                RETRIED,
            ) from exc
