"""What a shell is told when somebody presses Tab."""

import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest
from command_builders import make_job

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store

pytestmark = pytest.mark.seconds

MAIN = "import sys; sys.argv[0] = 'backfill'; from backfill_cli.main import main; main()"


def completed(*words: str) -> "subprocess.CompletedProcess[str]":
    """As bash's own function calls it, the last word being typed."""
    told = {
        "_BACKFILL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("backfill", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-c", MAIN]
    return subprocess.run(command, env={**os.environ, **told}, capture_output=True, text=True, timeout=60)


def test_jobs_complete_from_the_catalog(catalog: Catalog) -> None:
    make_job(catalog, "orders-eu")
    make_job(catalog, "shop")
    assert completed("pause", "or").stdout.split() == ["orders", "orders-eu"]
    assert completed("drop", "shop", "--confirm", "").stdout.split() == ["orders", "orders-eu", "shop"]
    other = Catalog(catalog.path.with_name("other.duckdb"))
    make_job(other, "lines")
    assert completed("status", "--catalog", str(other.path), "").stdout.split() == ["lines"]


def test_verbs_and_choices_complete(folder: Path) -> None:
    assert completed("sta").stdout.split() == ["start", "status"]
    assert completed("wait", "--for", "ca").stdout.split() == ["caught-up"]


def test_a_config_is_left_to_the_shell_which_completes_files(catalog: Catalog) -> None:
    for words in (["plan", "jo"], ["plan", "--config", "jo"], ["start", "--config", ""]):
        done = completed(*words)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_completion_is_silent_without_a_catalog_and_makes_nothing(folder: Path) -> None:
    done = completed("pause", "or")
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert list(folder.iterdir()) == []


def test_completion_does_not_wait_for_a_busy_catalog(catalog: Catalog) -> None:
    with Store(catalog.path).locked("test"):
        began = time.monotonic()
        done = completed("pause", "or")
        assert (done.stdout.strip(), done.stderr) == ("", "")
        assert time.monotonic() - began < 10
    with duckdb.connect(str(catalog.path)):  # somebody who does not know our lock
        done = completed("pause", "or")
        assert (done.stdout.strip(), done.stderr) == ("", "")


def test_completion_can_be_shown_and_is_in_the_help(folder: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", MAIN, "--show-completion", "bash"],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "complete -o default -F _backfill_completion backfill" in shown.stdout, shown.stderr
