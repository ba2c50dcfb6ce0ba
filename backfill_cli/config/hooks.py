"""Faults of `[hooks]` that its model cannot detect: reported when a job is started, not when it fails."""

import os
import shutil
from typing import Any

from backfill_cli.config.secrets import secret_faults
from backfill_cli.config.sections import Hooks

Tree = dict[str, Any]


def hook_faults(tree: Tree) -> list[str]:
    """A command that cannot be run here, and secrets in plain text. The tree's paths are absolute."""
    hooks = tree.get("hooks")
    command = hooks.get("command") if isinstance(hooks, dict) else None
    if not isinstance(command, list) or not command or not isinstance(command[0], str):
        return []
    secret = "this option is stored in the catalog; let the command read its secrets itself"
    faults = [f"{fault.partition(': ')[0]}: {secret}" for fault in secret_faults("hooks", hooks, Hooks)]
    program = command[0]
    if program and shutil.which(program) is None:
        why = "not executable: chmod +x" if os.path.isfile(program) else "no such program"
        faults.append(f"hooks.command[0]: {program}: {why}")
    return faults
