"""The errors for rows that a sink cannot take, the same for every sink: which table, which keys, what to do."""

import json
from collections.abc import Iterable
from typing import Any

from backfill_cli.contracts.sink import SinkTable
from backfill_cli.errors import START_OVER, BadData


def as_json(value: Any) -> str:
    """The beginning of a value, as its record has it and not as Python shows it; bytes in hexadecimal."""
    shown = f"\\x{value.hex()}" if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, default=str)
    return shown[:100]


def duplicate_keys(table: SinkTable, twice: Iterable[tuple[str, int]], where: str = "the snapshot") -> BadData:
    """twice: keys as text, each with its number of occurrences. where: which rows were checked."""
    named = "; ".join(f"({value}) {count} times" for value, count in twice)
    return BadData(
        f"table {table.name!r}: the key ({', '.join(table.key)}) is not unique in {where}: {named}",
        START_OVER + ", either with columns in the table's key that tell these rows apart, or with a `where` that "
        "excludes some of them",
    )


def no_row_to_fill(table: SinkTable, keys: Iterable[str]) -> BadData:
    """A change leaves columns unchanged in a row that the sink does not have."""
    named = "; ".join(f"({key})" for key in keys)
    return BadData(
        f"table {table.name!r}: a change leaves columns unchanged, but {table.target} has no row with the key "
        f"({', '.join(table.key)}) that it applies to: {named}",
        "rows were deleted from the sink: restore them, or " + START_OVER,
    )
