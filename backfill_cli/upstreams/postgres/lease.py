"""What a job holds in the database, and the connection that it uses for that: see contracts.Lease."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from backfill_cli.cdc.lease import LogLease
from backfill_cli.cdc.source import place_of
from backfill_cli.contracts import TableSpec
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
    lsn_text,
)
from backfill_cli.upstreams.postgres.keys import literal
from backfill_cli.upstreams.postgres.options import PostgresOptions
from backfill_cli.upstreams.postgres.rewritten import Look
from backfill_cli.upstreams.postgres.tables import called, known
from backfill_cli.upstreams.postgres.types import quoted


class SlotLease(LogLease):
    """Slot and publication of one job. Nothing is queried before one of its methods is called."""

    def __init__(self, options: PostgresOptions, specs: Sequence[TableSpec]) -> None:
        super().__init__(f"replication slot {options.slot!r}", options.max_retained)
        self._options, self._specs = options, specs
        self._look = Look(specs, options.publication)
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
        """The connection; a new one if it was lost."""
        if "_connection" in self.__dict__ and (self._connection.closed or self._connection.broken):
            del self.__dict__["_connection"]
        return self._connection

    def close(self) -> None:
        if "_connection" in self.__dict__:
            self._connection.close()

    def require_able(self) -> None:
        checks.require_able(self._alive(), self._options, self._look.listed)

    def obstacles(self, mark: str | None) -> Sequence[Refusal]:
        return checks.refusals(self._alive(), self._options, self._look.listed, mark)

    def preview(self) -> Sequence[str]:
        movable = [self._look.tables[spec.name] for spec in self._specs if not spec.immutable_key]
        made = checks.would_make(self._alive(), self._options, self._look.listed)
        stopping = checks.rewrites_that_stop(self._connection, self._options, self._look.listed)
        return [*made, *checks.generated(self._look.listed), *checks.lost_with_a_key(movable), *stopping]

    def _make(self, mark: str) -> None:
        connection = self._alive()
        self._waiting = backend(connection)
        try:
            slot.create(connection, self._options, mark, self._look.listed)
        finally:
            self._waiting = None

    def _waits_for(self) -> Limit | None:
        pid = self._waiting
        if pid is None:
            return None
        with glance(self._options.dsn) as connection:
            return holding_up(connection, pid)

    def _unmark(self, mark: str) -> None:
        slot.unmark(self._connection, mark)

    def _sweep(self, mark: str) -> None:
        slot.clean_up(self._connection, self._options, mark)

    def _remove(self) -> None:
        slot.remove(self._connection, self._options.slot, self._options.publication)

    def leftovers(self, mark: str) -> Sequence[str]:
        return slot.leftovers(self._alive(), self._options, mark)

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
            return HeldLog(seen.held_bytes, options.max_retained, slot.is_bounded(connection))

    def _held_bytes(self, at: int) -> int:
        seen = slot.now(self._alive(), self._options.slot)
        slot.require_ours(seen, self._options.slot, at)
        return seen.held_bytes

    def _place(self, at: int) -> str:
        return lsn_text(at)

    def _require_free(self) -> None:
        with asking("checking what the job holds"):
            slot.require_free(slot.now(self._connection, self._options.slot), self._options.slot)

    def removal(self, pin: Pin, mark: str | None) -> Sequence[str]:
        slots = [self._options.slot] if mark is None else [slot.mark_name(mark), self._options.slot]
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name ="
        return [
            *(f"{drop} {literal(name)}" for name in slots),
            f"DROP PUBLICATION IF EXISTS {quoted(publications.guard(self._options.slot))}",
            f"DROP PUBLICATION IF EXISTS {quoted(self._options.publication)} /* only if no other job uses it */",
        ]

    def _require_same(self, pin: Pin) -> None:
        identity.require_same_database(pin.identity, slot.now(self._alive(), self._options.slot))
