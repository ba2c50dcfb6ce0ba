"""Change files of Debezium's JSON, as its documentation and its source have them, applied to a table in log order.

An envelope has op (c, r, u, d, t), before, after, source; with schema blocks it stands in `payload` beside
`schema`, whose fields name semantic types. Kafka Connect writes NULLs out; a tombstone is `null` or an empty line.
A value that was not sent is the placeholder, in the form of its column.
"""

import base64
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from oracle import plain
from oracle.answer import Answer, Refused, Rows
from oracle.readers import json_text, kinds
from oracle.readers.json_text import Members, Number
from oracle.readers.kinds import Doubts, Kind, No

WORD = "__debezium_unavailable_value"
WORD_BYTES = WORD.encode()
NOT_SENT = (
    WORD,
    base64.b64encode(WORD_BYTES).decode(),
    f'{{"{WORD}":"{WORD}"}}',
    str(uuid.UUID(bytes=hashlib.md5(WORD_BYTES).digest(), version=3)),
)
"""As text; the last is Java's UUID.nameUUIDFromBytes."""
PER_SECOND = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
UNITS = {
    "io.debezium.time.Timestamp": "ms", "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}  # fmt: skip


def lines(name: str, raw: bytes) -> list[Any]:
    """The JSON texts of a file, a line each; blank ones and tombstones left out. Raises No, naming the file."""
    found = []
    for line in raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.strip(b" \t\r"):
            try:
                token = json_text.parsed(line)
                json_text.well_formed(token)
            except No as exc:
                raise No(f"{name}: {exc}") from None
            found.append(token)
    return [token for token in found if token is not None]


ALL = ("all",)
"""In place of a key: every row."""
UNSENT = ("unsent",)
"""In a changed row: the value is the one that the row had before."""


def stands_alone(token: Any) -> bool:
    """Whether all of a value is the placeholder: in an array as the one element, in a map as the one key."""
    if isinstance(token, Members):
        return [*map(tuple, token.pairs)] == [(WORD, WORD)]
    if isinstance(token, list):
        return not_sent(token) and (len(token) == 1 or isinstance(token[0], Number))
    return not_sent(token)


def not_sent(token: Any) -> bool:
    """Whether a value holds a placeholder, in any of the forms that the connector for Postgres gives it."""
    if isinstance(token, str):
        return token in NOT_SENT
    if isinstance(token, Members):
        return any(not_sent(name) or not_sent(one) for name, one in token.pairs)
    if isinstance(token, list):
        texts = [one.text if isinstance(one, Number) else "" for one in token]
        return texts == [str(byte) for byte in WORD_BYTES] or any(map(not_sent, token))
    return False


def value(
    kind: Kind, token: Any, told: Mapping[str, Any] | None, options: Mapping[str, str], doubts: Doubts
) -> Any:
    """told: the field of the schema block; without one the options say how it is written."""
    if token is None:
        return None
    name = str((told or {}).get("name") or "")
    if kind[0] == "decimal":
        form = options.get("decimals") if told is None else "precise" if name.endswith("data.Decimal") else "other"
        return _decimal(kind, token, form, int((told or {}).get("parameters", {}).get("scale", kind[2])), doubts)
    if kind == "date" and isinstance(token, Number):
        days = int(kinds.integer("int", token.text, doubts)[1])
        if abs(days) >= 2**31 - 1:
            raise No("a date that is infinite")
        if not -719162 <= days <= 2932896:
            doubts.append("a date beyond the years 1 to 9999")
        return ("day", days)
    if kind in ("timestamp", "timestamp_ntz") and isinstance(token, Number):
        unit = options.get("timestamps") if told is None else UNITS.get(name)
        if unit is None:
            raise No("a number, and nobody says of what unit")
        scaled, rest = divmod(int(kinds.integer("bigint", token.text, doubts)[1]) * 1_000_000, PER_SECOND[unit])
        if rest:
            raise No("nanoseconds")
        if scaled in (9223372036825200000, -9223372036832400000):
            raise No("an infinite time")
        return kinds.moment(scaled, kind == "timestamp", doubts)
    if isinstance(kind, tuple) and kind[0] == "array" and isinstance(token, list):
        inner = (told or {}).get("items") if told is not None else None
        return ("list", tuple(value(kind[1], one, inner, options, doubts) for one in token))
    if isinstance(kind, tuple) and kind[0] == "struct" and isinstance(token, Members):
        fields = {f["field"]: f for f in told["fields"]} if told is not None else {}
        return (
            "struct",
            tuple(
                (n, value(k, token.get(n, doubts), fields.get(n) if told is not None else None, options, doubts))
                for n, k in kind[1]
            ),
        )
    return json_text.value_of(kind, token, doubts)


def _decimal(kind: Kind, token: Any, form: str | None, scale: int, doubts: Doubts) -> Any:
    if form == "precise":
        if not isinstance(token, str):
            raise No("no base64")
        unscaled = int.from_bytes(kinds.of_base64(token, doubts), "big", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return kinds.decimal(kind[1], kind[2], kinds.Decimal((int(unscaled < 0), digits, -scale)))
    if form == "string" and not isinstance(token, str):
        doubts.append("a decimal that is no text")
    return json_text.value_of(kind, token, doubts)


def block_of(token: Any) -> dict[str, Any] | None:
    """Of a line's schema block the fields of `after`, by column."""
    if not isinstance(token, Members) or not token.has("schema"):
        return None
    fields = _plain(token.get("schema", []))["fields"]
    row = next(field for field in fields if field["field"] == "after")
    return {field["field"]: field for field in row["fields"]}


def _plain(token: Any) -> Any:
    if isinstance(token, Members):
        return {name: _plain(one) for name, one in token.pairs}
    if isinstance(token, list):
        return [_plain(one) for one in token]
    return token.text if isinstance(token, Number) else token


TIMES = {"ts_ms", "ts_us", "ts_ns"}


def is_message(record: Members) -> bool:
    """As the documentation has heartbeats, marks of transactions, changes of schemas, and messages of the log.

    Each has these members and no others: a row that was taken out of its envelope can have any of them.
    """
    told = {name: record.get(name, []) for name, _ in record.pairs}
    names = set(told) - TIMES
    if not names:
        return set(told) == {"ts_ms"} and _is_whole(told["ts_ms"])
    if told.get("op") == "m":
        parts = isinstance(told.get("source"), Members) and isinstance(told.get("message"), Members)
        return parts and names - {"transaction"} == {"op", "source", "message"}
    if names == {"status", "id", "event_count", "data_collections"} and isinstance(told["id"], str):
        counts, tables = told["event_count"], told["data_collections"]
        if told["status"] == "BEGIN":
            return counts is None and tables is None
        return told["status"] == "END" and _is_whole(counts) and isinstance(tables, list)
    of_schema = {"source", "databaseName", "ddl"} <= names <= {*SCHEMA_CHANGE}
    return of_schema and isinstance(told["source"], Members) and isinstance(told["ddl"], str | None)


SCHEMA_CHANGE = ("source", "databaseName", "schemaName", "ddl", "tableChanges")


def _is_whole(token: Any) -> bool:
    return isinstance(token, Number) and token.text.lstrip("-").isdigit()


def changes(
    columns: dict[str, Kind], key: str, token: Any, options: Mapping[str, str], doubts: Doubts
) -> list[tuple[Any, plain.Row | None]]:
    """What an envelope does: (key, row, or None where it is gone), in order. Raises No.

    An update that leaves a value out has UNSENT there, and no row before it: the row is still the one that it was.
    """
    told = block_of(token)
    envelope = token.get("payload", doubts) if isinstance(token, Members) and token.has("payload") else token
    if envelope is None:
        return []
    if isinstance(envelope, Members) and is_message(envelope):
        return []
    if not isinstance(envelope, Members) or not isinstance(op := envelope.get("op", doubts), str):
        raise No("no envelope")
    before, after = envelope.get("before", doubts), envelope.get("after", doubts)
    if op not in ("c", "r", "u", "d", "t"):
        raise No(f"op {op}")
    source = envelope.get("source", doubts)
    if isinstance(source, Members) and source.get("table", doubts) not in (None, options.get("table", "t")):
        raise No("a line of another table")
    if op == "t":
        return [(ALL, None)]
    if op != "d" and not isinstance(after, Members):
        raise No("no after")
    if op == "d" and not isinstance(before, Members):
        raise No("no before")

    def field(image: Members, name: str) -> Any:
        token = image.get(name, doubts)
        if not_sent(token):
            raise No(f"column {name} was not sent")
        return value(columns[name], token, None if told is None else told.get(name, {}), options, doubts)

    found: list[tuple[Any, plain.Row | None]] = []
    if isinstance(before, Members) and op in ("u", "d"):
        found.append((field(before, key), None))
    if op != "d":
        lacks = {name for name in columns if op == "u" and stands_alone(after.get(name, doubts))} - {key}
        row = {name: UNSENT if name in lacks else field(after, name) for name in columns}
        if lacks and found and found[0][0] != row[key]:
            raise No("a value was not sent, and the key changed")
        found = [*([] if lacks else found), (row[key], row)]
    if any(one is None for one, _ in found):
        raise No("the key is NULL")
    return found


def apply(held: dict[Any, plain.Row], changes: Sequence[tuple[Any, plain.Row | None]]) -> bool:
    """The table after these changes; whether a row that they complete is there: if not, nothing is applied."""
    if any(row is not None and UNSENT in row.values() and one not in held for one, row in changes):
        return False
    for one, row in changes:
        if one == ALL:
            held.clear()
            continue
        before = held.pop(one, {})
        if row is not None:
            held[one] = {name: before[name] if value == UNSENT else value for name, value in row.items()}
    return True


def table(
    columns: dict[str, Kind],
    key: str,
    rows: Sequence[plain.Row],
    files: Mapping[str, bytes],
    options: Mapping[str, str],
) -> Answer:
    """The table after all files in the order of their names."""
    held = {row[key]: row for row in rows}
    doubts: Doubts = []
    name = ""
    try:
        for name in sorted(files):
            for token in lines(name, files[name]):
                apply(held, changes(columns, key, token, options, doubts))
    except No as exc:
        return Refused(str(exc), (name.rsplit("/", 1)[-1],))
    return Rows(tuple(held.values()), None, "; ".join(doubts[:3]))
