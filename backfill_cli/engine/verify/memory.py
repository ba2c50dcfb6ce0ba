"""What an unfinished `verify` had compared: whole tables that were equal, kept in the catalog.

A table is skipped only if nothing that its comparison depends on can have changed: the basis covers all of that,
and nothing is remembered for another basis.
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
    """The memory of one job's comparison. basis: None if nothing is kept, see `at`."""

    catalog: "Catalog"
    job: str
    asked: Asked
    independent: bool
    basis: str | None = None

    def at(self, definition: JobDefinition, at: Checkpoint, copy: SinkCopy) -> "Memory":
        """The memory for exactly this comparison; empty if the sink cannot tell whether it was written to."""
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
        """By table that was found equal: its verdict, and when it was found, ms."""
        if self.basis is None:
            return {}
        targets = {table.name: table.target for table in tables}
        return {
            name: (TableVerdict(name, targets[name], True, upstream, sink), at_ms)
            for name, upstream, sink, at_ms in self.catalog.verified.equal(self.job, self.basis)
        }

    def note(self, verdict: TableVerdict) -> None:
        """Remembers an equal table for later verifies with this basis. A table that differs is read again."""
        if self.basis is not None and verdict.equal:
            with suppress(BackfillError):  # the verdict is valid even if the catalog cannot be written
                self.catalog.verified.note_equal(self.job, self.basis, verdict)
