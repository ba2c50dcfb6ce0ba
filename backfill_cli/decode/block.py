"""Debezium's schema block in records: the columns it describes, and whether a record's block agrees with them.

The blocks of a few records are read when a job begins. What they say about a column (`connect` in its metadata)
decides how it is read; a record whose block says something else is a fault, as its values would be misread.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Fault
from backfill_cli.decode import messages
from backfill_cli.decode.connect import (
    DECIMAL,
    INTS,
    Connect,
    Malformed,
    counts_alike,
    encoding,
    forms,
    holds,
    is_others,
    own_type,
    without_others,
    word_of,
)
from backfill_cli.decode.encodings import Encoding, schemaless
from backfill_cli.decode.whole import new_column
from backfill_cli.errors import BadData, Hint
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import Columns, SparkType, field, shown
from backfill_cli.model.skipped import Skipped

_EXACT = {"double": ("int8", "int16", "int32"), "float": ("int8", "int16")}

MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
"""What is raised where a block is read that is not Kafka Connect's."""


def envelope_of(value: bytes | None) -> tuple[Mapping[str, Any], Mapping[str, Any] | None] | None:
    """(envelope, schema block or None) of a record; None if it is not a Debezium envelope."""
    try:
        told = json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None
    block = None
    if isinstance(told, dict) and "payload" in told and "op" not in told:
        told, block = told["payload"], told.get("schema")
    if not isinstance(told, dict) or "op" not in told:
        return None
    return told, block if isinstance(block, dict) and "fields" in block else None


def message_in(value: bytes) -> Skipped | None:
    """What a record is that changes no row; None for any other record."""
    try:
        told = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if isinstance(told, dict) and "payload" in told and "op" not in told:
        told = told["payload"]
    return messages.kind_of(told) if isinstance(told, dict) else None


def row_of(block: Mapping[str, Any]) -> list[Connect] | None:
    """The fields of the row as a block has them, None if it has none."""
    parts = block.get("fields")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("field") == "after":
            fields = part.get("fields")
            return [one for one in fields if isinstance(one, dict)] if isinstance(fields, list) else []
    return None


def row_fields(block: Mapping[str, Any]) -> dict[str, Connect]:
    """What a block says about each column of the row."""
    return {one["field"]: meaning(one) for one in row_of(block) or ()}


def meaning(told: Connect) -> dict[str, Any]:
    """A field without what does not describe its type: defaults, docs, whether it is nullable."""
    named = ("field", "type", "name", "written", "json")
    kept: dict[str, Any] = {k: told[k] for k in named if told.get(k) is not None}
    if "scale" in (told.get("parameters") or {}):
        kept["parameters"] = {
            k: v for k, v in told["parameters"].items() if k in ("scale", "connect.decimal.precision")
        }
    for part in ("items", "keys", "values"):
        if isinstance(told.get(part), dict):
            kept[part] = meaning(told[part])
    if "fields" in told:
        kept["fields"] = [meaning(one) for one in told["fields"]]
    return kept


def is_sound(block: Mapping[str, Any]) -> bool:
    """Whether a block is Kafka Connect's: the record of another cannot be read, and says nothing of others."""
    try:
        for told in row_fields(block).values():
            _kind(told)
            try:
                own_type(told)
            except Malformed:
                return False
            except Unsupported:
                pass
    except MALFORMED:
        return False
    return True


UNTOLD = (
    "but no schema said what the column's numbers count when the job began, so others may count something else: "
    "start over, and this schema says it"
)
"""The fault of numbers that count something, in a column of which nothing is told."""


class Clash(BadData):
    """A column has two types, neither of which holds the other's values."""


def together(
    place: str, blocks: Iterable[Mapping[str, Any]], begun: bool = False, way_on: Hint | str = ""
) -> dict[str, Connect]:
    """The columns of all blocks. Raises Clash for one that changes its type between them. way_on: its hint.

    begun: the job reads these records: the first block counts, and a record of another type cannot be read.
    """
    found: dict[str, Connect] = {}
    for block in blocks:
        for name, told in row_fields(block).items():
            if _kind(found.setdefault(name, told)) != _kind(told) and not begun:
                both = f"{said(found[name])} and {said(told)}"
                raise Clash(f"{place}: column '{name}' changes its type: the schema blocks say {both}", way_on)
    return found


def newest(blocks: Iterable[Mapping[str, Any]], declared: Columns | None) -> dict[str, Connect]:
    """The columns of all blocks, by the last one; a declared one by the last that can be read into its type."""
    found: dict[str, Connect] = {}
    for block in blocks:
        for name, told in row_fields(block).items():
            column = None if declared is None else declared.get(name)
            if name not in found or column is None or _is_read(told, column["type"]):
                found[name] = told
    return found


def _is_read(told: Connect, kind: SparkType) -> bool:
    try:
        encoding_of(told, kind)
    except Unsupported:
        return False
    return True


def pinned(
    place: str,
    schemas: Iterable[tuple[str, Sequence[Connect]]],
    begun: bool = False,
    way_on: Hint | str | None = "",
) -> dict[str, Connect]:
    """The columns of these schemas, newest first, each with the type that holds the values of all of them.

    schemas: (what names one, its fields). A field that a newer schema has under another name, by its aliases, is
    that column. begun: see Asked; otherwise what stands for other members is among them.
    Raises Clash for a column of two types neither of which holds the other's values. way_on: its hint; None: the
    newer one counts.
    """
    found: dict[str, tuple[str, Connect]] = {}
    for written, fields in schemas:
        renamed = {old: name for name, (_, one) in found.items() for old in one.get("aliases") or ()}
        for one in map(without_others, (one for one in fields if not is_others(one))) if begun else fields:
            field_name = str(one["field"])
            name = field_name if field_name in found else renamed.get(field_name, field_name)
            known = found.setdefault(name, (written, one))
            wider = _wider(known[1], one)
            if wider is None and way_on is not None:
                both = f"{known[0]} says {said(known[1])}, but {written} says {said(one)}"
                raise Clash(f"{place}: column '{name}' changes its type: {both}", way_on)
            if wider is one:
                kept = {k: v for k, v in known[1].items() if k not in ("written", "json")}
                found[name] = written, {**kept, **meaning(one), "field": name}
    return {name: one for name, (_, one) in found.items()}


def names_of(told: Mapping[str, Connect]) -> frozenset[str]:
    """Those of the columns, of what `pinned` returned."""
    return frozenset(name for name, one in told.items() if not is_others(one))


def _wider(one: Connect, other: Connect) -> Connect | None:
    """Which of two fields has a type that holds the other's values, the first one if both do; None: neither."""
    if _kind(one) == _kind(other):
        return one
    for wide, narrow in ((one, other), (other, one)):
        try:
            kind = own_type(wide)[0]
            how = Encoding("plain") if is_whole(narrow, kind) else encoding(narrow, kind)
        except Unsupported:
            continue
        if counts_alike(narrow, wide, how):
            return wide
    return None


def is_whole(told: Connect, kind: SparkType) -> bool:
    """Whether a field of whole numbers is read into a column of floating ones, which holds every one of them."""
    return isinstance(kind, str) and not told.get("name") and told.get("type") in _EXACT.get(kind, ())


def columns_of(place: str, told: Mapping[str, Connect], declare: Hint | str) -> Columns:
    """The columns that the blocks describe. Raises BadData for one whose block gives no exact type."""
    columns: Columns = {}
    for name, one in told.items():
        try:
            kind, metadata = own_type(one)
        except Unsupported as exc:
            raise BadData(f"{place}: column '{name}': {exc}", declare) from exc
        columns[name] = field(name, kind, metadata)
    return columns


def with_told(columns: Columns, told: Mapping[str, Connect]) -> Columns:
    """The columns, each with what the blocks say about it."""
    return {
        name: {**c, "metadata": {**c["metadata"], "connect": told[name]}} if name in told else c
        for name, c in columns.items()
    }


def without_told(columns: Columns) -> Columns:
    """The columns, without what `with_told` added."""
    return {
        name: {**c, "metadata": {of: told for of, told in c["metadata"].items() if of != "connect"}}
        for name, c in columns.items()
    }


def told_of(column: Mapping[str, Any]) -> Connect | None:
    found: Connect | None = column["metadata"].get("connect")
    return found


def encoding_of(told: Connect, target: SparkType) -> Encoding:
    """How to read a column that a block describes. Raises Unsupported if it does not fit the type.

    A number or a text with a logical type may be kept as the number or the text that it is.
    """
    try:
        return encoding(told, target)
    except Unsupported:
        kind = str(told.get("type"))
        if isinstance(target, str) and target.startswith("decimal") and kind == "double":
            return schemaless(target, None, "double")
        if kind in (*INTS, "boolean", "string") and target == "string":
            return Encoding("plain")
        if kind in INTS and holds(target, INTS[kind]):
            return Encoding("plain")
        raise


def disagreement(
    row: Sequence[Connect] | None,
    columns: Columns,
    how: Mapping[str, Encoding],
    allowed: frozenset[str] | None,
    may_lack: bool,
    written: str | None = None,
    taken: frozenset[str] = frozenset(),
) -> tuple[str, Fault] | None:
    """How a record's block differs from how the record is read; None for no difference.

    row: the block's fields of the row. allowed: the columns that the table may have; None: any. may_lack: whether
    a block can lack any column, which is then NULL. written: what the schema is, if it is not in the record.
    taken: see Asked.
    """
    says = written or "its schema block"
    within = f"in {says}"
    by_name = {str(one.get("field")): one for one in reversed(row or ())}
    for name, column in columns.items():
        mine = by_name.get(name)
        told = told_of(column)
        agrees = mine is None or _agrees(mine, how[name], column["type"])
        if mine is not None and not (agrees and counts_as(mine, told, how[name])):
            unlike = UNTOLD if agrees and told is None else f"but it is read as {_shown(column, how[name])}"
            return f"column '{name}': {says} says {said(mine)}, {unlike}", Fault.SCHEMA_BLOCK
        if mine is None and not may_lack and told is None:
            return f"column '{name}' is not {within}", Fault.BLOCK_COLUMNS
    more = None if allowed is None else new_column(by_name, allowed, (), within)
    if allowed is None or more is None:
        return None
    if may_lack:
        return more, Fault.BLOCK_COLUMNS
    odd = unfit([name for name in by_name if name not in allowed], columns, by_name, says, taken)
    return odd or (more, Fault.NEW_COLUMN)


def unfit(
    new: Iterable[str],
    columns: Columns,
    fields: Mapping[str, Connect],
    says: str,
    taken: frozenset[str] = frozenset(),
) -> tuple[str, Fault] | None:
    """The fault of new columns of which the table cannot have one; None if all can be added.

    says: as messages name the schema. taken: see Asked.
    """
    for name in new:
        if why := _no_column(name, columns, fields, taken):
            return f"column '{name}' is new in {says}; the table cannot have it: {why}", Fault.NO_COLUMN
    return None


def _no_column(name: str, columns: Columns, fields: Mapping[str, Connect], taken: frozenset[str]) -> str | None:
    """Why a field cannot become a column of the table; None if it can."""
    if not name or own.is_own(name):
        return f"names that begin with {own.PREFIX} are backfill's own" if name else "it has no name"
    if own.fold(name) in taken:
        return "the column of that name says where a row's record is"
    twin = next((one for one in (*columns, *fields) if one != name and own.fold(one) == own.fold(name)), None)
    if twin is not None:
        return f"it differs from '{twin}' in case only"
    try:
        own_type(without_others(fields[name]))
    except Unsupported as exc:
        return str(exc)
    return None


def counts_as(mine: Connect, column: Connect | None, how: Encoding) -> bool:
    """Whether a field's numbers count what the column's do. column: what is told of it, None if nothing is: then
    they must count nothing, as others of the column may count something else."""
    return counts_alike(mine, column or {}, how)


def _agrees(mine: Connect, how: Encoding, target: SparkType) -> bool:
    """Whether a block's description of a field agrees with how it is read."""
    kind, name = mine.get("type") or "", mine.get("name") or ""
    if isinstance(target, str):
        scale = (mine.get("parameters") or {}).get("scale")
        # a logical name of such a type says nothing about how it is written
        free = kind in ("float", "double", "boolean", "bytes") and name != DECIMAL
        one = (str(kind), "" if free else str(name), "" if scale is None else str(scale))
        return one in forms(how, target, encoding_of)
    inner = dict(how.inner)
    if target["type"] == "array":
        return kind == "array" and _agrees(mine.get("items") or {}, inner[""], target["elementType"])
    if target["type"] == "map":
        return kind == "map" and _agrees(mine.get("values") or {}, inner[""], target["valueType"])
    parts = {part.get("field"): part for part in mine.get("fields") or ()}
    return kind == "struct" and all(
        f["name"] in parts and _agrees(parts[f["name"]], inner[f["name"]], f["type"]) for f in target["fields"]
    )


def _kind(told: Connect) -> tuple[Any, ...]:
    """What must be the same in all records."""
    scale = (told.get("parameters") or {}).get("scale")
    inner = tuple(_kind(told[part]) for part in ("items", "values") if part in told)
    parts: Sequence[Connect] = told.get("fields", ())
    return told.get("type"), told.get("name"), scale, inner, tuple((p["field"], _kind(p)) for p in parts)


def said(told: Connect) -> str:
    """A field's type, as messages name it."""
    return " ".join(str(part) for part in (word_of(told), *_kind(told)[1:3]) if part is not None)


def _shown(column: Mapping[str, Any], how: Encoding) -> str:
    told = told_of(column)
    if told is not None:
        return said(told)
    return " ".join(
        str(part) for part in (shown(column["type"]), how.kind, how.unit, how.scale) if part is not None
    )
