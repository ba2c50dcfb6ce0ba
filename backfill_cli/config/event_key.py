"""Keys that a config can leave out: the place of an event in its log, or a primary key known to the upstream."""

from collections.abc import Mapping, Sequence
from typing import Any

Tree = dict[str, Any]


def with_event_key(tree: Tree, key: Sequence[str]) -> Tree:
    """The config's tree, with `key` for each table that names none, and in every `select` that such a table uses.

    An empty `key` changes nothing: a table without a key is then a fault.
    """
    told = tree.get("tables")
    if not key or not isinstance(told, list) or all("key" in table for table in told if isinstance(table, dict)):
        return tree
    tables = [_table(table, key) if isinstance(table, dict) and "key" not in table else table for table in told]
    return {**tree, "tables": tables, **_kept(tree, key)}


def without_key(tree: Tree) -> list[str]:
    """The names of the tables that name no key."""
    told = tree.get("tables")
    tables = [table for table in told if isinstance(table, dict)] if isinstance(told, list) else []
    return [table["name"] for table in tables if "key" not in table and isinstance(table.get("name"), str)]


def with_primary_keys(tree: Tree, keys: Mapping[str, Sequence[str]]) -> Tree:
    """The config's tree with these keys, by table."""
    if not keys:
        return tree
    tables = [
        {**table, "key": list(keys[table["name"]])}
        if isinstance(table, dict) and "key" not in table and table.get("name") in keys
        else table
        for table in tree["tables"]
    ]
    return {**tree, "tables": tables}


def _table(table: Mapping[str, Any], key: Sequence[str]) -> Tree:
    return {**table, "key": list(key), **_kept(table, key)}


def _kept(holder: Mapping[str, Any], key: Sequence[str]) -> Tree:
    """The `transform` of a table or of the whole config, the key put in front of a select that lacks it."""
    transform = holder.get("transform")
    if not isinstance(transform, dict) or not isinstance(select := transform.get("select"), list):
        return {}
    text = " ".join(item for item in select if isinstance(item, str)).lower()
    missing = [] if "*" in select else [column for column in key if column.lower() not in text]
    return {"transform": {**transform, "select": [*missing, *select]}}
