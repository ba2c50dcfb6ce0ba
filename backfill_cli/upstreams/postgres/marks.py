"""The slot that a start creates, recognised by its mark: a second slot whose name nobody else can have chosen.

A slot does not record who created it, and a start may be killed before its catalog has the job. So the slot is
created under the mark's name and copied to its own. While the mark exists, a slot with the job's name is ours if
it is at the mark's position, and another reader's if it is not.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import Transient, sql
from backfill_cli.failpoint import hit
from backfill_cli.upstreams.postgres import publications, slot
from backfill_cli.upstreams.postgres.client import asking
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.tables import PgTable

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_STAND = """
SELECT m.slot_name::text, m.active_pid, s.slot_name::text,
       coalesce((s.database, s.plugin, s.confirmed_flush_lsn) = (m.database, m.plugin, m.confirmed_flush_lsn)
                AND s.restart_lsn IS NOT DISTINCT FROM m.restart_lsn, false)
FROM (SELECT) one LEFT JOIN pg_replication_slots m ON m.slot_name = %s
LEFT JOIN pg_replication_slots s ON s.slot_name = %s
"""

_FREE = """
SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots)::int
"""


def make(connection: "Connection", options: PostgresOptions, mark: str, tables: Sequence[PgTable]) -> None:
    """Publication, a new slot and its mark exist. Raises UsageError for a slot that another reader created.

    If the server has room for one slot only, there is no mark.
    """
    with asking("creating publication and slot"):
        _drop(connection, options, mark)  # of an attempt whose answer was lost
        slot.require_none(slot.now(connection, options.slot), options.slot)
        publications.use(connection, options.publication, tables, options.slot)
        first = name(mark) if _has_room(connection) else options.slot
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (first,))
        if first != options.slot:
            hit("slot-marked")
            connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", (first, options.slot))


def sweep(connection: "Connection", options: PostgresOptions, mark: str) -> None:
    """The mark is gone; so are the slot, if it is the mark's, and a publication of ours that no other job uses."""
    with asking("removing what a start left behind"):
        _drop(connection, options, mark)
        if slot.now(connection, options.slot).plugin is None:
            publications.leave(connection, options.publication, options.slot)


def unmark(connection: "Connection", mark: str) -> None:
    """The mark is gone; the slot stays."""
    with asking("removing the mark of a slot"):
        (marked, *_) = _stand(connection, mark, "")
        if marked is not None:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (marked,))


def left(connection: "Connection", options: PostgresOptions, mark: str) -> list[str]:
    """What `sweep` would drop."""
    with asking("checking for what a start left behind"):
        marked, named, is_ours = _stand(connection, mark, options.slot)
    names = [marked] if marked is not None else []
    return [f"replication slot {name!r}" for name in (*names, *([named] if is_ours else []))]


def _drop(connection: "Connection", options: PostgresOptions, mark: str) -> None:
    """Both are dropped, the mark last: until then it shows whose the slot is."""
    marked, named, is_ours = _stand(connection, mark, options.slot)
    for name in (named if is_ours else None, marked):
        if name is not None:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def _stand(connection: "Connection", mark: str, named: str) -> tuple[str | None, str | None, bool]:
    """The names of mark and slot, None for one that does not exist, and whether both are at the same position.

    Raises Transient while the server is still creating the mark for a start that was killed.
    """
    row = connection.execute(_STAND, (name(mark), named)).fetchone()
    assert row is not None
    marked, pid, there, is_ours = row
    if pid is not None:
        raise Transient(
            f"replication slot {marked!r} is still being created, by process {pid}, for a start that was killed",
            "wait until the transactions that were open when its creation began have ended, or: "
            + sql(f"SELECT pg_terminate_backend({pid})"),
        )
    return marked, there, is_ours


def _has_room(connection: "Connection") -> bool:
    """Whether there is room for slot and mark."""
    row = connection.execute(_FREE).fetchone()
    return row is not None and row[0] > 1


def name(mark: str) -> str:
    """The name of the mark's slot."""
    return f"backfill_start_{mark}"
