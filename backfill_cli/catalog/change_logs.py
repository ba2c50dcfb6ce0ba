"""How much of each job's change log was read, as far as the catalog knows: into the sink, or into a spool."""

from typing import TYPE_CHECKING

from backfill_cli.catalog import checkpoints, jobs, spool
from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from backfill_cli.catalog.store import Store


class ChangeLogs:
    """The change logs of one catalog's jobs."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def has_been_read(self, job: str) -> bool:
        """Whether any part of it was decoded: applied, promised or taken into a spool."""
        with self._store.reading() as db:
            at_pin = checkpoints.stands_at(db, job, jobs.definition(db, job).pin.position)
            return not at_pin or spool.holds_any(db, job)

    def is_spooled(self, job: str) -> bool:
        """Whether the job's spool has entries."""
        with self._store.reading() as db:
            return spool.holds_any(db, job)

    def acknowledged(self, job: str) -> Position:
        """The position up to which it may be acknowledged: spool or sink have all before it."""
        with self._store.reading() as db:
            spooled = spool.entries(db, job)
            return spooled[-1].window.up_to if spooled else checkpoints.reached(db, job)
