"""What Debezium writes beside the changes of rows: into topics of their own, or among the changes.

Heartbeats, where a transaction begins and ends (provide.transaction.metadata), changes of schemas, and messages
that a program left in the source's log (op `m`). None changes a row.
"""

from collections.abc import Mapping

from backfill_cli.decode.tokens import Token


def kind_of(record: Mapping[str, Token]) -> str | None:
    """What a record is of these, in words; None for an envelope of a row, or anything else."""
    if record.get("op") is not None:
        return "messages of the source's log" if record["op"] == "m" else None
    if record.keys() == {"ts_ms"}:
        return "heartbeats"
    if record.get("status") in ("BEGIN", "END") and "id" in record:
        return "marks of transactions"
    return "changes of schemas" if {"source", "databaseName", "ddl"} <= record.keys() else None
