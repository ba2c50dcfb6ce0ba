"""Parts of a line of a Debezium file: its envelope, the fields of its schema block, its source time."""

from collections.abc import Mapping
from typing import Any

from backfill_cli.errors import BadData
from backfill_cli.formats.debezium_changes import HEARTBEAT, HEARTBEAT_HINT, UNWRAPPED
from backfill_cli.formats.debezium_types import Connect
from backfill_cli.formats.listing import File


def refuse_other(file: File, payload: Mapping[str, Any], line: str) -> None:
    """Raises BadData for a line that is not an envelope of a table's row, with what it is and what to do."""
    if {"updateDescription", "patch", "filter"} & payload.keys() or isinstance(payload.get("after"), str):
        raise BadData(
            f"{file.path}: an envelope of Debezium's MongoDB connector, which holds documents, not rows: "
            f"{line[:120]}",
            "flatten documents before they land; only envelopes of relational connectors are read",
        )
    if "op" in payload:
        return
    if payload.keys() == {"ts_ms"}:
        raise BadData(f"{file.path}: {HEARTBEAT}: {line[:120]}", HEARTBEAT_HINT)
    if any(name in payload for name in UNWRAPPED):
        raise BadData(
            f"{file.path}: flattened by Debezium's ExtractNewRecordState, so without the old row: {line[:120]}",
            "remove the transform `unwrap` from the connector: only whole envelopes are read",
        )
    raise BadData(
        f"{file.path}: a line without 'op' is not a Debezium envelope: {line[:120]}",
        "if these are plain appends (rows without an op), set their folder as upstream.snapshot.path; else set "
        "upstream.changes.format",
    )


def payload_of(envelope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The envelope itself, out of its schema block if it has one; None for a tombstone."""
    if "payload" in envelope and "op" not in envelope:
        inner = envelope["payload"]
        return inner if isinstance(inner, dict) else None
    return envelope


def told_of(envelope: Mapping[str, Any]) -> dict[str, Connect] | None:
    """The row's fields in the schema block, by column; None without a block."""
    if "payload" not in envelope or "op" in envelope:
        return None
    for part in (envelope.get("schema") or {}).get("fields", ()):
        if part.get("field") == "after":
            return {one["field"]: one for one in part.get("fields", ())}
    return {}


def source_ms(payload: Mapping[str, Any]) -> int | None:
    """When the source wrote the change, else when the connector read it; None if the line has neither."""
    source = payload.get("source")
    for holder in (source if isinstance(source, dict) else {}, payload):
        if isinstance(holder.get("ts_ms"), int):
            return int(holder["ts_ms"])
    return None
