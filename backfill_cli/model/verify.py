"""What `verify` found: upstream and sink at one checkpoint, table by table."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DifferentRange:
    """A range of keys whose hashes differ.

    name: for people ("id 0 to 999", "part 3 of 64 by hash"). columns: those whose hashes differ, the key's
    included when rows are missing or too many.
    """

    name: str
    rows_upstream: int
    rows_sink: int
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DifferentRow:
    """One value that differs, as text.

    column: None when the whole row does: it is missing on a side, or there twice.
    upstream, sink: None for NULL; for a whole row how many there are ("0 rows", "2 rows").
    """

    key: tuple[tuple[str, str | None], ...]
    column: str | None
    upstream: str | None
    sink: str | None


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """ranges: how many ranges were compared (1 when the first hash over all rows settled it).

    rows: the first that differ, at most as many as were asked for.
    """

    table: str
    target: str
    equal: bool
    rows_upstream: int
    rows_sink: int
    ranges: int = 1
    different: tuple[DifferentRange, ...] = ()
    rows: tuple[DifferentRow, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """epoch: the checkpoint that both sides were taken at. seconds: wall time, session start left out.

    converging: a fuzzy load whose end is not reached yet, so that a difference may still pass.
    independent: DuckDB read the upstream, not our readers.
    not_compared: by table, how many keys changed upstream since the checkpoint, and so could not be.
    """

    job: str
    epoch: int
    tables: tuple[TableVerdict, ...]
    seconds: float
    converging: bool = False
    independent: bool = False
    not_compared: Mapping[str, int] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)
