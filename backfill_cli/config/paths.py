"""Paths of a config, made absolute when it is loaded: `resume` may be typed in another folder."""

import os
import re
from pathlib import Path
from typing import Any

from backfill_cli.config.references import REFERENCE, each_string
from backfill_cli.config.sections import DEFAULT_SPOOL, DEFAULT_STAGING

Tree = dict[str, Any]
_MAYBE_PATHS = (("hooks", "command", 0), ("upstream", "table"), ("sink", "table"))
_NO_FILE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/|\$\{|:memory:")


def absolute(tree: Tree, base: Path) -> Tree:
    """The tree, with its paths and those of `${file:…}` made absolute."""

    def settle(path: tuple[str | int, ...], text: str) -> str:
        text = REFERENCE.sub(lambda found: _absolute_reference(found, base), text)
        is_path = path in (("job", "staging"), ("spool", "path")) or (
            path[0] in ("upstream", "sink") and path[-1] == "path"
        )
        is_path = is_path or (path in _MAYBE_PATHS and "/" in text)
        return _absolute_path(text, base) if is_path and text else text

    if isinstance(job := tree.get("job"), dict):
        tree = {**tree, "job": {"staging": DEFAULT_STAGING, **job}}
        if job.get("strategy") == "chain" and isinstance(spool := tree.get("spool", {}), dict):
            tree["spool"] = {"path": DEFAULT_SPOOL, **spool}
    settled: Tree = each_string(tree, settle)
    return settled


def _absolute_reference(found: re.Match[str], base: Path) -> str:
    return f"${{file:{_absolute_path(found[2], base)}}}" if found[1] == "file" and found[2] else found[0]


def _absolute_path(text: str, base: Path) -> str:
    if _NO_FILE.match(text):
        return text
    return os.path.normpath(base / Path(text).expanduser())
