"""Rows that could not be read and are quarantined in the sink: how many, in which table, how to query them."""

import re
from collections.abc import Mapping

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


def spell_quarantined(quarantined: Mapping[str, int]) -> str:
    """`3 rows in _backfill_quarantine_orders`; empty if there are none."""
    return ", ".join(f"{spell_count(rows, 'row')} in {table}" for table, rows in quarantined.items())


def look_at(quarantined: Mapping[str, int]) -> str:
    """The SQL that shows them, for the sink's own client."""
    return "; ".join(f"SELECT * FROM {_sql_name(table)} LIMIT 20" for table in quarantined)


def spell_count(number: int, word: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _sql_name(table: str) -> str:
    """The table's name as DuckDB and PostgreSQL read it; quoted only if necessary."""
    parts = table.split(".")
    return ".".join(part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in parts)
