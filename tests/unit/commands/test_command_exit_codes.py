"""Every error ends the process with its own code: scripts rely on it."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_builders import Run, fake_engine, write_config

from backfill_cli import errors
from backfill_cli.catalog import Catalog
from backfill_cli.errors import BackfillError
from backfill_cli.model.verify import TableVerdict, VerifyReport

CODES = {
    "BackfillError": 1,
    "UsageError": 2,
    "SinkInUse": 2,
    "VerifyMismatch": 3,
    "NoSuchJob": 4,
    "Held": 5,
    "Transient": 6,
    "HistoryGone": 7,
    "WaitTimedOut": 8,
    "StoppedEarly": 9,
    "Fatal": 1,
    "BadData": 1,
    "ColumnAdded": 1,
    "StateConflict": 1,
    "SpoolFull": 6,
    "SparkEnded": 6,
    "LogFirst": 6,
}


def test_every_error_of_the_tree_is_in_the_table() -> None:
    found = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BackfillError)
    }
    assert found - {"ConfigError"} == set(CODES)


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_an_error_becomes_message_hint_and_code(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    def start(*_: Any) -> None:
        raise getattr(errors, name)("what, where, \x1b[31mwhich [b]value[/b]", "the next thing")

    fake_engine(monkeypatch, "loop.run", start=start)
    result = run("start", "--config", write_config(folder))
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr == "error: what, where, [31mwhich [b]value[/b]\nTry: the next thing\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pasue"], "command 'pasue' does not exist; did you mean pause?"),
        (["pause", "--wiat"], "option --wiat does not exist; did you mean --wait?"),
        (["help", "strat"], "command 'strat' does not exist; did you mean start"),
        (["config", "shwo"], "command 'shwo' does not exist; did you mean show?"),
        (["--verson"], "option --verson does not exist; did you mean --version"),
        (["start", "--zzz"], "option --zzz does not exist\n"),
        (["resume", "--from-sink", "--catalog", "x"], "option --from-sink has no value before --catalog"),
        (["start"], "no config is given, and there is no job.toml in"),
        (["throttle", "--rate", "fast"], "--rate 'fast' is not a number of rows per second"),
        (["throttle", "--rate", "-1"], "--rate '-1' is not a number of rows per second"),
        (["throttle", "--rate", "nan"], "--rate 'nan' is not a number of rows per second"),
        (["wait", "--for", "ever"], "Invalid value for '--for'"),
        (["wait", "--for", "done", "--timeout", "soon"], "--timeout 'soon': a duration must be"),
        (["drop", "orders"], "job 'orders' would lose its progress: --confirm is missing"),
        (["drop", "orders", "--confirm", "other"], "--confirm names 'other'"),
        (["start", "--config", "none.toml"], "none.toml: 1 problem\n  the file does not exist"),
        (["pause", "../etc"], "is not a valid job name"),
    ],
)
@pytest.mark.usefixtures("catalog")
def test_wrong_usage_is_code_2_with_a_message_and_a_hint(run: Run, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "\nTry: " in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["pasue", "--json"], 2, "command 'pasue' does not exist; did you mean pause?"),
        (["pause", "--wiat", "--json"], 2, "option --wiat does not exist; did you mean --wait?"),
        (["wait", "--json", "--for", "ever"], 2, "Invalid value for '--for'"),
        (["config", "show", "none.toml", "--json"], 2, "none.toml: 1 problem"),
        (["start", "none.toml", "--json"], 2, "none.toml: 1 problem"),
        (["status", "ordres", "--json"], 4, "job 'ordres' does not exist; did you mean orders?"),
        (["drop", "orders", "--json"], 2, "job 'orders' would lose its progress"),
        (["history", "orders", "--catalog", "absent", "--json"], 4, "there is no catalog at "),
        (["init", "absent/job.toml", "--json"], 2, "absent/job.toml: No such file"),
    ],
)
@pytest.mark.usefixtures("catalog")
def test_with_json_an_error_is_one_object_on_stdout_too(run: Run, words: list[str], code: int, told: str) -> None:
    result = run(*words)
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["exit_code"]) == (code, code)
    assert told in error["message"]
    spelled = f"error: {error['message']}\nTry: {error['hint']['text']}\n"
    assert result.stderr == spelled


def test_with_json_the_faults_of_a_config_are_a_list(run: Run, folder: Path) -> None:
    file = write_config(folder, '[job]\nname = "orders"\n')
    error = json.loads(run("plan", file, "--json").stdout)["error"]
    assert [fault.split(":")[0] for fault in error["faults"]] == ["upstream", "tables", "sink"]


def test_with_json_a_fault_of_ours_is_an_object_too(
    run: Run, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    def verify(*_: Any) -> None:
        raise ZeroDivisionError("by nothing")

    fake_engine(monkeypatch, "verify.job", verify=verify)
    result = run("verify", "--json")
    assert isinstance(result.exception, ZeroDivisionError)
    error = json.loads(result.stdout)["error"]
    assert (error["message"], error["exit_code"]) == ("ZeroDivisionError: by nothing", 1)


def test_with_json_an_answer_that_is_there_gets_no_second_object(
    run: Run, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    table = TableVerdict("orders", "orders", False, 2, 1, missing=1)
    report = VerifyReport("orders", 7, (table,), 1.0)
    fake_engine(monkeypatch, "verify.job", verify=lambda *_: report)
    result = run("verify", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["equal"] is False


@pytest.mark.parametrize("verb", ["status", "pause", "resume", "stop", "verify", "drop"])
@pytest.mark.usefixtures("catalog")
def test_an_unknown_job_is_code_4_and_lists_the_known(run: Run, verb: str) -> None:
    result = run(verb, "ordres")
    assert result.exit_code == 4
    assert "orders" in result.stderr


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "verify"])
def test_without_a_catalog_there_is_no_job(run: Run, folder: Path, verb: str) -> None:
    assert run(verb).exit_code == 4
    assert list(folder.iterdir()) == []


def test_ctrl_c_is_code_130_and_quiet(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise KeyboardInterrupt

    fake_engine(monkeypatch, "loop.run", start=start)
    result = run("start", "--config", write_config(folder))
    assert (result.exit_code, result.output) == (130, "")


def test_alone_it_shows_its_help_and_its_version(run: Run) -> None:
    assert run().exit_code == 2
    assert "Usage: " in run().stdout
    assert run("--version").stdout.startswith("backfill ")
