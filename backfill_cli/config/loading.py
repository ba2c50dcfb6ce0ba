"""What loading does to a config's tree: paths become absolute, keys are filled in, hooks are tried out."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backfill_cli.config.connectors import known
from backfill_cli.config.marks import Steps
from backfill_cli.config.paths import absolute_path, absolute_reference, is_path
from backfill_cli.config.secrets import each_string, secret_places
from backfill_cli.config.sections import DEFAULT_SPOOL, DEFAULT_STAGING, Hooks, JobFile
from backfill_cli.model.secret_forms import REFERENCE

Tree = dict[str, Any]
_PROGRAM = ("hooks", "command", 0)


def absolute(tree: Tree, base: Path) -> Tree:
    """The tree, with its paths and those of `${file:…}` made absolute."""
    connectors = {part: known(part, tree.get(part)) for part in ("upstream", "sink")}

    def settle(path: Steps, text: str) -> str:
        text = REFERENCE.sub(lambda found: absolute_reference(found, base), text)
        if path[0] in connectors:
            connector = connectors[str(path[0])]
            settles = connector is not None and is_path(connector.options, path[1:], text)
        else:
            settles = ("/" in text) if path == _PROGRAM else is_path(JobFile, path, text)
        return absolute_path(text, base) if settles and text else text

    if isinstance(job := tree.get("job"), dict):
        tree = {**tree, "job": {"staging": DEFAULT_STAGING, **job}}
        if job.get("strategy") == "chain" and isinstance(spool := tree.get("spool", {}), dict):
            tree["spool"] = {"path": DEFAULT_SPOOL, **spool}
    settled: Tree = each_string(tree, settle)
    return settled


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
    return [table["name"] for table in _named(tree) if "key" not in table]


def named_tables(tree: Tree) -> list[str]:
    """The names of all tables."""
    return [table["name"] for table in _named(tree)]


def _named(tree: Tree) -> list[Tree]:
    told = tree.get("tables")
    tables = [table for table in told if isinstance(table, dict)] if isinstance(told, list) else []
    return [table for table in tables if isinstance(table.get("name"), str)]


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


def hook_faults(tree: Tree) -> list[str]:
    """A command that cannot be run here, and secrets in plain text. The tree's paths are absolute."""
    hooks = tree.get("hooks")
    command = hooks.get("command") if isinstance(hooks, dict) else None
    if not isinstance(command, list) or not command or not isinstance(command[0], str):
        return []
    secret = "this option is stored in the catalog; let the command read its secrets itself"
    faults = [f"{at}: {secret}" for at in secret_places("hooks", hooks, Hooks)]
    program = command[0]
    if program and shutil.which(program) is None:
        why = "not executable: chmod +x" if os.path.isfile(program) else "this program does not exist"
        faults.append(f"hooks.command[0]: {program}: {why}")
    return faults
