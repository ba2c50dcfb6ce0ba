"""What a `verify` that did not end had compared: whole tables that were equal, kept in the catalog.

A table is not read again only where nothing that its comparison depends on can have changed: the basis says all of
it, and another basis knows of nothing.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from backfill_cli import __version__
from backfill_cli.contracts import JobDefinition, SinkCopy, SinkTable
from backfill_cli.errors import BackfillError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.codec import encode
from backfill_cli.model.verify import Asked, TableVerdict

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one job's comparison. basis: None where nothing is kept, see `at`."""

    catalog: "Catalog"
    job: str
    asked: Asked
    independent: bool
    basis: str | None = None

    def at(self, definition: JobDefinition, at: Checkpoint, copy: SinkCopy) -> "Memory":
        """What is known of exactly this; of nothing where the sink cannot say whether it was written to."""
        mark = copy.mark()
        if mark is None:
            return self
        told = [
            __version__,
            encode(definition),
            encode(at),
            list(self.asked.tables),
            self.asked.sample,
            self.independent,
            mark,
        ]
        return replace(self, basis=hashlib.sha256(json.dumps(told).encode()).hexdigest())

    def equal(self, tables: Sequence[SinkTable]) -> Mapping[str, tuple[TableVerdict, int]]:
        """By table: that it is equal, and when that was found, ms."""
        if self.basis is None:
            return {}
        targets = {table.name: table.target for table in tables}
        return {
            name: (TableVerdict(name, targets[name], True, upstream, sink), at_ms)
            for name, upstream, sink, at_ms in self.catalog.verified.equal(self.job, self.basis)
        }

    def note(self, verdict: TableVerdict) -> None:
        """A table that is equal is known to be, to a verify with this basis. One that differs is read again."""
        if self.basis is not None and verdict.equal:
            with suppress(BackfillError):  # a catalog that cannot be written makes the verdict worth no less
                self.catalog.verified.note_equal(self.job, self.basis, verdict)
