"""What was taken of a change log into a job's spool, window by window."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backfill_cli.contracts.source import TakenTable
from backfill_cli.model.plan import ChangeWindow


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """The changes of one barrier's window: durable, immutable and self-describing.

    number: increases within the job; attempt: which try at taking it; together they name the entry's folder.
    window: closed; its end is the phantom barrier. tables: paths are relative to the folder; tables without
    changes are absent.
    digests: BLAKE2b of each file as hex, by its path. schemas: table -> Spark schema as JSON, for tables whose
    columns changed at the window's beginning. memory: what the upstream remembers at the window's end
    (`Source.remembered`). due_ms, taken_ms: when its barrier was due, and when the entry was durable.
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
        """The folder's name; names sort in the order of the entries."""
        return f"{self.number:012d}-{self.attempt}"

    @property
    def changes(self) -> int:
        """How many were taken, before netting."""
        return sum(table.changes for table in self.tables.values())

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for table in self.tables.values() for file in table.files)
