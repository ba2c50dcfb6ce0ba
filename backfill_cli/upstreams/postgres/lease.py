"""What a job holds in the database: a slot and a publication; and the connection that it uses.

A slot does not record who created it, and a start may be killed before its catalog has the job. So the slot is
created under the name of its mark, which nobody else can have chosen, and copied to its own. While the mark is
there, a slot with the job's name is ours if it is at the mark's position, another reader's if it is not.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from backfill_cli.cdc.lease import LogLease
from backfill_cli.cdc.source import place_of
from backfill_cli.contracts import TableSpec
from backfill_cli.errors import Transient, sql
from backfill_cli.failpoint import hit
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position
from backfill_cli.model.reports import Refusal
from backfill_cli.model.upstream import HeldLog, Pin
from backfill_cli.postgres_holders import holding_up
from backfill_cli.upstreams.postgres import checks, identity, publications, slot
from backfill_cli.upstreams.postgres.client import (
    Connection,
    asking,
    backend,
    connected_alone,
    glance,
    is_lost,
    lsn_text,
    row_of,
)
from backfill_cli.upstreams.postgres.ddl import TableCatalog
from backfill_cli.upstreams.postgres.keys import literal
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.tables import called, known
from backfill_cli.upstreams.postgres.types import quoted

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


class SlotLease(LogLease):
    """Slot and publication of one job. Nothing is queried before one of its methods is called."""

    def __init__(self, options: PostgresOptions, specs: Sequence[TableSpec]) -> None:
        super().__init__(f"replication slot {options.slot!r}", options.max_retained)
        self._options, self._specs = options, specs
        self._catalog = TableCatalog(specs, options.publication)
        self._waiting: int | None = None  # the server process that may wait for others
        self._retained: str | None = None

    @property
    def _read_slot(self) -> str:
        """The slot that the log is read from: the job's, or a copy of it."""
        return self._retained or self._options.slot

    @contextmanager
    def retained(self) -> Iterator[str]:
        with slot.copied(self._alive(), self._options.slot) as name:
            self._retained = name
            try:
                yield f"the server keeps its log, and what VACUUM would remove of its catalog (slot {name!r})"
            finally:
                self._retained = None

    @cached_property
    def _connection(self) -> Connection:
        return connected_alone(self._options.dsn)

    def _alive(self) -> Connection:
        """The connection; a new one if it was lost.

        As it is for one in a transaction that has failed: `chunk_time` can end a ROLLBACK, too.
        """
        if "_connection" in self.__dict__ and is_lost(self._connection):
            self._connection.close()
            del self.__dict__["_connection"]
        return self._connection

    def close(self) -> None:
        if "_connection" in self.__dict__:
            self._connection.close()

    def require_able(self) -> None:
        checks.require_able(self._alive(), self._options, self._catalog.listed)

    def obstacles(self, mark: str | None) -> Sequence[Refusal]:
        is_marked = mark is not None and bool(self.leftovers(mark))
        return checks.refusals(self._alive(), self._options, self._catalog.listed, is_marked)

    def preview(self) -> Sequence[str]:
        movable = [
            table
            for spec in self._specs
            if not spec.immutable_key
            and any(map(spec.wanted.needs, (table := self._catalog.tables[spec.name]).may_lack()))
        ]
        made = checks.would_make(self._alive(), self._options, self._catalog.listed)
        stopping = checks.rewrites_that_stop(self._connection, self._options, self._catalog.listed)
        return [*made, *checks.generated(self._catalog.listed), *checks.lost_with_a_key(movable), *stopping]

    def _make(self, mark: str) -> None:
        """If the server has room for one slot only, there is no mark."""
        connection, own = self._alive(), self._options.slot
        self._waiting = backend(connection)
        try:
            with asking("creating publication and slot"):
                self._drop(self._marked(mark))
                slot.require_none(slot.now(connection, own), own)
                publications.use(connection, self._options.publication, self._catalog.listed, own)
                (free,) = row_of(connection, "creating publication and slot", _FREE)
                first = _mark_name(mark) if free > 1 else own
                connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (first,))
                if first != own:
                    hit("slot-marked")
                    connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", (first, own))
        finally:
            self._waiting = None

    def _waits_for(self) -> Limit | None:
        pid = self._waiting
        if pid is None:
            return None
        with glance(self._options.dsn) as connection:
            return holding_up(connection, pid)

    def _unmark(self, mark: str) -> None:
        with asking("removing the mark of a slot"):
            self._drop(self._marked(mark)[-1:])

    def _sweep(self, mark: str) -> None:
        """And a publication of ours that no other job uses."""
        with asking("removing what a start left behind"):
            self._drop(self._marked(mark))
            if slot.now(self._connection, self._options.slot).plugin is None:
                publications.leave(self._connection, self._options.publication, self._options.slot)

    def _remove(self) -> None:
        """And a publication that we created and that no other job uses."""
        own = self._options.slot
        with asking("removing slot and publication"):
            seen = slot.now(self._connection, own)
            self._require_unread(seen)
            if seen.plugin is not None:
                slot.require_kind(seen, own, "remove it yourself if it is not needed")
                self._connection.execute("SELECT pg_drop_replication_slot(%s)", (own,))
            publications.leave(self._connection, self._options.publication, own)

    def leftovers(self, mark: str) -> Sequence[str]:
        self._alive()
        with asking("checking for what a start left behind"):
            return [f"replication slot {name!r}" for name in reversed(self._marked(mark))]

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))

    def _marked(self, mark: str) -> list[str]:
        """The names of the job's slot, if it is the mark's, and of the mark, if they exist.

        The mark is last, as it shows whose the slot is. Raises Transient while the server is still creating it for
        a start that was killed.
        """
        given = (_mark_name(mark), self._options.slot)
        found = self._connection.execute(_STAND, given).fetchone()
        assert found is not None
        marked, pid, named, is_ours = found
        if pid is not None:
            raise Transient(
                f"replication slot {marked!r} is still being created, by process {pid}, for a start that was "
                "killed",
                "wait until the transactions that were open when its creation began have ended, or: "
                + sql(f"SELECT pg_terminate_backend({pid})"),
            )
        return [name for name in (named if is_ours else None, marked) if name is not None]

    def lag(self, pin: Pin, position: Position) -> HeldLog:
        options = self._options
        with glance(options.dsn) as connection:
            seen = slot.now(connection, options.slot)
            identity.require_same_history(pin.identity, seen)
            slot.require_ours(seen, options.slot, place_of(position))
            tables = known(connection, self._specs)
            published = publications.published(connection, options.publication, tables)
            found = identity.of(seen, options.slot, published, tables)
            identity.require_not_replaced(pin.identity, found, lambda oid: called(connection, oid))
            identity.require_same_tables(pin.identity, found)
            return HeldLog(seen.held_bytes, options.max_retained)

    def _held_bytes(self, at: int) -> int:
        seen = slot.now(self._alive(), self._options.slot)
        slot.require_ours(seen, self._options.slot, at)
        return seen.held_bytes

    def _place(self, at: int) -> str:
        return lsn_text(at)

    def _require_free(self) -> None:
        self._require_unread(slot.now(self._connection, self._options.slot))

    def _require_unread(self, seen: slot.SlotState) -> None:
        if seen.active_pid is not None:
            raise Transient(
                f"{self._called} is being read by process {seen.active_pid}",
                "end that process first: " + sql(f"SELECT pg_terminate_backend({seen.active_pid})"),
            )

    def require_joinable(self) -> None:
        publications.require_joinable(
            self._alive(), self._options.publication, self._catalog.listed, self._options.slot
        )

    def join(self, mark: str) -> None:
        with asking("adding tables to the publication"):
            publications.join(self._alive(), self._options.publication, self._catalog.listed, self._options.slot)

    def give_up(self, table: str, mark: str) -> None:
        self._publishes_no_more(table)

    def leave(self, table: str, pin: Pin) -> None:
        self._publishes_no_more(table)

    def _publishes_no_more(self, table: str) -> None:
        with asking("removing a table from the publication"):
            publications.drop(self._alive(), self._options.publication, table, self._options.slot)

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        slots = [self._options.slot] if mark is None else [_mark_name(mark), self._options.slot]
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name ="
        return [
            *(f"{drop} {literal(name)}" for name in slots),
            f"DROP PUBLICATION IF EXISTS {quoted(publications.guard(self._options.slot))}",
            f"DROP PUBLICATION IF EXISTS {quoted(self._options.publication)} /* only if no other job uses it */",
        ]

    def _require_same(self, pin: Pin) -> None:
        identity.require_same_database(pin.identity, slot.now(self._alive(), self._options.slot))


def _mark_name(mark: str) -> str:
    """The name of the mark's slot."""
    return f"backfill_start_{mark}"
