"""Tables of events: their key is where the log has them, so a config need not name it."""

from collections.abc import Mapping, Sequence
from typing import Any

Tree = dict[str, Any]


def with_event_key(tree: Tree, key: Sequence[str]) -> Tree:
    """The config's tree with `key` for each table that names none, kept by every `select` that such a table uses.

    An empty `key` changes nothing: then a table without one is a fault.
    """
    told = tree.get("tables")
    if not key or not isinstance(told, list) or all("key" in table for table in told if isinstance(table, dict)):
        return tree
    tables = [_table(table, key) if isinstance(table, dict) and "key" not in table else table for table in told]
    return {**tree, "tables": tables, **_kept(tree, key)}


def _table(table: Mapping[str, Any], key: Sequence[str]) -> Tree:
    return {**table, "key": list(key), **_kept(table, key)}


def _kept(holder: Mapping[str, Any], key: Sequence[str]) -> Tree:
    """`transform` of a table or of the whole config, with the key in front of a select that lacks it."""
    transform = holder.get("transform")
    if not isinstance(transform, dict) or not isinstance(select := transform.get("select"), list):
        return {}
    text = " ".join(item for item in select if isinstance(item, str)).lower()
    missing = [] if "*" in select else [column for column in key if column.lower() not in text]
    return {"transform": {**transform, "select": [*missing, *select]}}
