"""What a sink says of rows that it cannot take, the same in every sink: which table, which keys, what to do."""

from collections.abc import Iterable

from backfill_cli.contracts.sink import SinkTable
from backfill_cli.errors import BadData


def duplicate_keys(table: SinkTable, twice: Iterable[tuple[str, int]], where: str = "the snapshot") -> BadData:
    """twice: keys as text, each with how often it is there. where: what rows were looked at."""
    named = "; ".join(f"({value}) {count} times" for value, count in twice)
    return BadData(
        f"table {table.name!r}: the key ({', '.join(table.key)}) is not unique in {where}: {named}",
        "drop the job and start over: with columns in the table's key that tell these rows apart, or with "
        "a `where` that leaves some of them out",
    )


def no_row_to_fill(table: SinkTable, keys: Iterable[str]) -> BadData:
    """A change leaves columns as they are of a row that the sink does not have."""
    named = "; ".join(f"({key})" for key in keys)
    return BadData(
        f"table {table.name!r}: a change leaves columns as they were, and {table.target} has no row of the key "
        f"({', '.join(table.key)}) that it changes: {named}",
        "somebody deleted rows of the sink; put them back, or drop the job and start over",
    )
