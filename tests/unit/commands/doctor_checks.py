"""The checks of doctor by name, with a Java that is there, and what a folder holds."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_builders import Run

from backfill_cli.engine.job import machine
from backfill_cli.spark.java import Java

# Looked up before a test replaces it; None for a package that is not there.
installed = machine._version


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is there and runs."""
    monkeypatch.setattr(machine, "find_java", lambda env: Java(Path("/opt/java/bin/java"), 21, "21 Acme"))
    monkeypatch.setattr(machine, "asked", lambda path: "21")


def found(run: Run, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The checks by name, what fixes each as text."""
    done = run("doctor", "--json", *words)
    told = json.loads(done.stdout)
    assert done.exit_code == (0 if told["ok"] else 1), done.stderr
    by_name: dict[str, list[dict[str, Any]]] = {}
    for check in told["checks"]:
        fix = check["fix"] and check["fix"]["text"]
        by_name.setdefault(check["name"], []).append(check | {"fix": fix or ""})
    return by_name


def tree(folder: Path) -> Mapping[Path, tuple[int, int]]:
    """Locks are no state."""
    kept = [file for file in folder.rglob("*") if file.suffix not in (".lock", ".queue")]
    return {file: (file.stat().st_mode, file.stat().st_size) for file in kept}
