"""Which keys a table's predicate covers: the database compares them, by its types and collations."""

from itertools import islice

from backfill_cli.cdc.net import Entry, Key
from backfill_cli.upstreams.postgres.client import Connection, rows_of
from backfill_cli.upstreams.postgres.net import NetTable
from backfill_cli.upstreams.postgres.types import Column

BATCH_KEYS = 20_000


def keep_covered(connection: Connection, net: NetTable, predicate: str) -> None:
    """Of the table's changes, those remain whose key satisfies the predicate over k0 … kn."""
    query = _query([net.columns[at] for at in net.key_at], predicate)
    keys = iter(net.entries)
    kept: dict[Key, Entry] = {}
    while batch := list(islice(keys, BATCH_KEYS)):
        parts = zip(*map(net.values, batch), strict=True)
        texts = [[value.decode() for value in part if isinstance(value, bytes)] for part in parts]
        rows = rows_of(connection, f"comparing keys of {net.table.name}", query, texts)
        kept.update((batch[at - 1], net.entries[batch[at - 1]]) for (at,) in rows)
    net.entries = kept


def _query(key: list[Column], predicate: str) -> str:
    texts = ", ".join("%s::text[]" for _ in key)
    names = ", ".join(f"t{at}" for at in range(len(key)))
    typed = ", ".join(f"{_typed(f't{at}', column)} AS k{at}" for at, column in enumerate(key))
    return (
        f"SELECT ord FROM unnest({texts}) WITH ORDINALITY u ({names}, ord), "
        f"LATERAL (SELECT {typed}) k WHERE {predicate.replace('%', '%%')}"
    )


def _typed(text: str, column: Column) -> str:
    """Without the column's collation, the database's default would decide the order."""
    collation = f" COLLATE {column.collation}" if column.collation else ""
    return f"({text}::{column.type_name}){collation}"
