"""What of a change log was taken into a job's spool, window by window."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_cli.contracts.taking import TakenTable
from backfill_cli.model.plan import ChangeWindow


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """The changes of one barrier's window: durable, immutable, and described by itself.

    number: rising in the job; attempt: which taking of it; together they name the entry's folder. window: closed,
    its end is the phantom barrier. tables: paths are relative to the folder; no entry for a table without changes.
    digests: of each file, BLAKE2b as hex, by its path. schemas: table -> Spark schema as JSON, of those whose
    columns changed at the window's begin. memory: what the upstream knows again at the window's end
    (RememberingUpstream). due_ms, taken_ms: when its barrier was due, and when the entry was durable.
    """

    number: int
    attempt: str
    window: ChangeWindow
    tables: Mapping[str, TakenTable]
    digests: Mapping[str, str] = field(default_factory=dict)
    schemas: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""
    due_ms: int = 0
    taken_ms: int = 0

    @property
    def name(self) -> str:
        """Of its folder; names sort as the entries do."""
        return f"{self.number:012d}-{self.attempt}"

    @property
    def changes(self) -> int:
        """How many were taken, before netting."""
        return sum(table.changes for table in self.tables.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for table in self.tables.values() for file in table.files)
