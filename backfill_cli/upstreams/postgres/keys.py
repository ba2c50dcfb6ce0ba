"""Conditions on keys, which the database compares: no key is ever compared here.

A cursor is a JSON list of the texts of a key's columns, as the server's output functions write them; a cursor that
is a split's bound may have the first columns only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from backfill_cli.model.position import Cursor
from backfill_cli.model.split import Split
from backfill_cli.upstreams.postgres.types import Column, quoted


def cursor_of_key(texts: Sequence[str]) -> Cursor:
    return json.dumps(list(texts), ensure_ascii=False)


def literal(text: str) -> str:
    """The text as an SQL string literal, whatever characters it holds."""
    escaped = text.replace("'", "''")
    return "E'" + escaped.replace("\\", "\\\\") + "'" if "\\" in text else "'" + escaped + "'"


def above(key: Sequence[Column], names: Sequence[str], cursor: Cursor) -> str:
    """The condition that a row's key comes after the cursor. names: SQL of the key's columns."""
    return _compared(key, names, ">", cursor)


def up_to(key: Sequence[Column], names: Sequence[str], cursor: Cursor) -> str:
    """The condition that a row's key is at or before the cursor."""
    return _compared(key, names, "<=", cursor)


def _compared(key: Sequence[Column], names: Sequence[str], operator: str, cursor: Cursor) -> str:
    texts: list[str] = json.loads(str(cursor))
    parts = list(zip(key, names, texts, strict=False))
    left = ", ".join(f"{name}{column.comparable}" for column, name, _ in parts)
    right = ", ".join(f"{literal(text)}::{column.type_name}{column.comparable}" for column, _, text in parts)
    return f"({left}) {operator} ({right})"


def bounds(split: Split) -> tuple[Cursor | None, Cursor | None]:
    """The bounds of a split's keys, `(after, up to]`; None: open-ended."""
    detail = json.loads(split.detail)
    return detail.get("after"), detail.get("up_to")


def within(key: Sequence[Column], splits: Iterable[Split], reached: Mapping[str, Cursor | None]) -> str | None:
    """The condition, on columns k0, k1, …, that some split has reached a key; None if all splits are fully read.

    reached: by split, how far it was read, None for its end; a split that is missing was not begun.
    """
    names = [f"k{i}{f' COLLATE {column.collation}' if column.collation else ''}" for i, column in enumerate(key)]
    conditions, whole = [], True
    for split in splits:
        if split.id not in reached:
            whole = False
            continue
        low, high = bounds(split)
        end = reached[split.id]
        whole = whole and end is None
        limits = [above(key, names, low)] if low is not None else []
        limits += [up_to(key, names, e) for e in ((end if end is not None else high),) if e is not None]
        conditions.append(" AND ".join(limits) or "true")
    if whole:
        return None
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def key_names(key: Sequence[Column]) -> list[str]:
    """SQL of the key's columns in the table itself, with the collation that they have there."""
    return [quoted(column.name) for column in key]
