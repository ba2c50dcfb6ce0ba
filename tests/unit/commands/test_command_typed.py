"""What holds for every command: how catalog and config are named, the help, and what is not imported."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from command_builders import Run, end_job
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.commands._options import config_file, open_catalog
from backfill_cli.errors import UsageError
from backfill_cli.model.job import JobState


def test_the_catalog_of_a_folder_above_is_found_unless_a_job_is_made(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    assert run("status", "orders").exit_code == 0
    assert open_catalog("", above=False).path == Path.cwd() / ".backfill/catalog.duckdb"
    assert run("stop").exit_code == 4  # of a job that was not named, in a catalog that was not either
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert open_catalog("").path == Path.cwd() / ".backfill/catalog.duckdb"
    monkeypatch.undo()
    monkeypatch.chdir(folder / "a" / "b")
    assert run("list").stdout == run("status").stdout != ""
    assert f"catalog {folder}/.backfill/catalog.duckdb" in run("status").stderr.splitlines()
    assert run("status", "--check").exit_code == 4, "another folder's health is not this one's"
    assert run("status", "orders", "--check").exit_code != 4
    monkeypatch.chdir(folder)
    assert "catalog " not in run("status").stderr


def test_the_config_is_named_by_an_option_an_argument_or_not_at_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"no job\.toml in"):
        config_file(None, None)
    (folder / "job.toml").touch()
    assert config_file(None, None) == Path("job.toml")
    assert config_file("a.toml", None) == config_file(None, "a.toml") == Path("a.toml")
    with pytest.raises(UsageError, match="two configs"):
        config_file("a.toml", "b.toml")
    with pytest.raises(UsageError, match="is empty"):
        config_file(None, "")


def test_help_has_a_short_form(run: Run) -> None:
    for words in (["-h"], ["status", "-h"], ["config", "-h"]):
        helped = run(*words)
        assert helped.exit_code == 0
        assert "Usage:" in helped.stdout


@pytest.mark.parametrize("words", [["start", "--until", "x"], ["wait", "--for", "x"], ["resume", "--until", "x"]])
def test_a_wrong_choice_is_told_in_plain_words(run: Run, folder: Path, words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert f"error: Invalid value for '{words[1]}': 'x' is not one of 'caught-up', " in result.stderr


READ_OR_POST = [
    ["status"],
    ["status", "--json"],
    ["status", "orders"],
    ["status", "--check"],
    ["history"],
    ["logs"],
    ["pause"],
    ["throttle", "--rate", "5"],
    ["stop"],
    ["wait", "--for", "stopped"],
]


@pytest.mark.parametrize("words", READ_OR_POST, ids=" ".join)
def test_commands_that_read_or_post_import_neither_spark_nor_pydantic(catalog: Catalog, words: list[str]) -> None:
    end_job(catalog, "orders", JobState.DONE)
    code = (
        "import sys, atexit\n"
        "heavy = {'pyspark', 'py4j', 'pydantic', 'sqlglot', 'pyarrow', 'pandas', 'numpy'}\n"
        "atexit.register(lambda: print('IMPORTED', sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = ['backfill', *{words!r}]\n"
        "from backfill_cli.main import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    allowed = "['pydantic']" if words[0] == "wait" else "[]"
    assert f"IMPORTED {allowed}" in ended.stderr


def test_the_version_names_java_and_spark_where_that_is_asked_for(run: Run) -> None:
    refused = run("--verbose")
    assert refused.exit_code == 2
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        told = run("--verbose", *hint.options())
    assert told.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in told.stdout.splitlines())
    assert list(lines) == ["backfill", "java", "python", "pyspark", "pyarrow", "duckdb"]
    assert lines["pyspark"] == version("pyspark")
    assert lines["java"].startswith("Java ")
    assert run("--version").stdout == f"backfill {lines['backfill']}\n"
