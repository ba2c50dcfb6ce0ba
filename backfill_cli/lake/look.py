"""What `init` says of lake tables, whatever their format: which they are, their keys, what start refuses."""

from collections.abc import Sequence

from backfill_cli.contracts import FoundTable, Named, Told, named_after
from backfill_cli.errors import BackfillError, UsageError
from backfill_cli.lake.upstream import LakeTable


def tables_of(named: Named) -> Sequence[str]:
    """The names of the job's tables. Raises UsageError for a pattern of places without any."""
    return named.tables or [_table_at(named.text)]


def _table_at(place: str) -> str:
    if "{table}" in place:
        raise UsageError(f"{place}: it holds several tables, and none is named", "name them: --table NAME")
    return named_after(place.rstrip("/").rpartition("/" if "/" in place else ".")[2])


def key_of(named: Named, identifies: Sequence[str], columns: Sequence[str]) -> Told:
    """The table's key: as the user says it, or else the columns that the table itself says identify a row."""
    if named.key:
        return Told(list(named.key))
    if identifies:
        return Told(list(identifies), "the table's identifier fields")
    listed = f"; columns: {', '.join(columns)}" if columns else ""
    return Told(None, f"the table names none{listed}")


def refusal(source: LakeTable, table: FoundTable) -> Sequence[str]:
    """What a start would refuse, in a line; none if the key is not known yet."""
    if not table.key.value:
        return ()
    try:
        source.pinned("latest")
    except BackfillError as error:
        return (f"start refuses this yet; plan shows what to do: {error.message}",)
    return ()


def together(said: Sequence[Sequence[str]]) -> Sequence[str]:
    """The lines of all tables, at most three."""
    lines = [line for one in said for line in one]
    return lines if len(lines) <= 3 else [*lines[:2], f"and {len(lines) - 2} more lines like these"]
