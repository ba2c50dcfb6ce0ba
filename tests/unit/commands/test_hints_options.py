"""What a refused command asks for, typed: options, another file, a setting. The command is then accepted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_builders import Run, end_job, fake_engine, make_job, write_config
from hint_scene import Scene, scene
from hint_typed import Typed, typed
from server_process import free_port
from typer.testing import CliRunner

from backfill_cli import registry
from backfill_cli.api.background import _opened
from backfill_cli.catalog import Catalog, Claim
from backfill_cli.catalog.jobs import check_name
from backfill_cli.commands._running import telling
from backfill_cli.errors import BackfillError, Fatal
from backfill_cli.main import app
from backfill_cli.model.job import JobState
from backfill_cli.model.verify import TableVerdict, VerifyReport
from backfill_cli.view.metrics import _served, _written

__all__ = ["scene"]


def refused(run: Run, *words: str) -> str:
    done = run(*words)
    assert done.exit_code not in (0, None), done.output
    return done.stderr.split("Try: ", 1)[1]


def error_of(act: Callable[[], object]) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        act()
    return caught.value


@pytest.mark.parametrize("words", [("logs",), ("history",)], ids="".join)
def test_a_number_of_lines_is_named(run: Run, catalog: Catalog, words: tuple[str, ...]) -> None:
    with typed(refused(run, *words, "--last", "many")) as hint:
        done = run(*words, "--last", hint.options()["--last"])
        assert done.exit_code == 0, done.output


def closed(*_: object) -> None:
    raise Fatal("a gate is closed")


ALIKE = VerifyReport("orders", 5, (TableVerdict("orders", "orders", True, 1, 1),), 1.0)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("verify", "--fix", "--sample", "1%"), ("verify", "--fix")),
        (("verify", "--confirm", "orders"), ("verify",)),
        (("verify", "--sample", "most"), ("verify", "--sample", "{--sample}")),
        (("cutover", "--dry-run", "--reverse"), ("cutover", "--dry-run")),
        (("status", "--max-lag", "5s"), ("status", "--max-lag", "5s", "--check")),
        (("status", "--check", "--watch"), ("status", "--check")),
        (("status", "--splits", "--watch"), ("status", "--splits")),
        (
            ("wait", "--for", "stopped", "--timeout", "soon"),
            ("wait", "--for", "stopped", "--timeout", "{--timeout}"),
        ),
    ],
    ids=lambda words: " ".join(words),
)
def test_an_option_is_left_out_added_or_written_otherwise(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], left: tuple[str, ...]
) -> None:
    end_job(catalog, "orders", JobState.STOPPED)
    alike = {"verify.fix": "would_fix", "verify.job": "verify"}
    for module, name in alike.items():
        fake_engine(monkeypatch, module, **{name: lambda *_: ALIKE})
    fake_engine(monkeypatch, "cutover", look=closed)
    with typed(refused(run, *words)) as hint:
        changed(hint, words, left)
        done = run(*(word.format(**options_of(hint, word)) for word in left))
        assert done.exit_code != 2, done.output
        assert "Traceback" not in done.output


def options_of(hint: Typed, word: str) -> dict[str, str]:
    return hint.options() if word.startswith("{") else {}


def changed(hint: Typed, words: tuple[str, ...], left: tuple[str, ...]) -> None:
    """The hint asks for what makes the one of the other."""
    gone = [word for word in words if word.startswith("--") and word not in left]
    more = [word for word in left if word.startswith("--") and word not in (*words, "--confirm")]
    if more:
        hint.says(f"add {more[0]}")
    elif gone and "one of them" not in hint.hint:
        hint.says(f"leave {gone[0]} out")
    elif gone:
        hint.says("leave one of them out")


def test_a_drop_is_told_of_one_sink_or_of_none(scene: Callable[[str], Scene]) -> None:
    s = scene("0")
    with typed(s.refused("drop", "orders", "--with-rows", "--without-sink")) as hint:
        hint.says("leave one of them out")
        assert s.run("drop", "orders", "--without-sink", "--confirm", "orders").exit_code == 0


def test_a_fix_is_confirmed_by_the_jobs_own_name(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_engine(monkeypatch, "verify.fix", fix=lambda *_: ALIKE)
    with typed(refused(run, "verify", "--fix", "--confirm", "ordres")) as hint:
        (words,) = hint.commands()
        assert run(*words).exit_code == 0


def test_one_config_is_named_by_a_name(run: Run, folder: Path) -> None:
    file = write_config(folder)
    with typed(refused(run, "config", "show", file, "--config", file)) as hint:
        hint.says("give only one of them")
        assert run("config", "show", file).exit_code == 0
    with typed(refused(run, "config", "show", "")) as hint:
        assert "--config" in hint.options()
        assert run("config", "show", "--config", file).exit_code == 0


def test_a_run_tells_of_itself_at_least_once_a_second() -> None:
    def told(every: str) -> object:
        return telling(None, None, every, False, False, False)

    with typed(error_of(lambda: told("10ms"))) as hint:
        told(hint.options()["--progress-interval"])


def test_a_job_with_a_runner_is_resumed_without_options_of_a_run(run: Run, claim: Claim) -> None:
    with typed(refused(run, "resume", "orders", "--metrics-file", "m.prom")) as hint:
        hint.says("leave that out")
        assert run("resume", "orders").exit_code == 0


def test_a_file_is_written_elsewhere(run: Run, catalog: Catalog, folder: Path) -> None:
    with typed(refused(run, "report", "orders", "--out", str(folder))) as hint:
        assert "--out" in hint.options()
        done = run("report", "orders", "--out", "report.html")
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("there", [("job.toml",), ("job.toml", "other.toml")], ids=len)
def test_init_names_a_file_that_it_can_write(run: Run, folder: Path, there: tuple[str, ...]) -> None:
    for name in there:
        (folder / name).touch()
    with typed(refused(run, "init")) as hint:
        (words,) = hint.commands()
        assert run(*words).exit_code == 0


def test_init_in_a_folder_that_is_read_only_names_one_that_is_not(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backfill_cli.commands import _written

    home = folder / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    opened = _written.os.open

    def open_(path: Any, *told: Any, **more: Any) -> int:
        if not Path(path).is_absolute():
            raise OSError(30, "Read-only file system")
        return opened(path, *told, **more)

    monkeypatch.setattr(_written.os, "open", open_)
    with typed(refused(run, "init")) as hint:
        hint.says("name a file in another folder, such as ")
        assert run("init", hint.hint.split()[-1]).exit_code == 0
        assert (home / "job.toml").exists()


def test_init_is_told_where_the_snapshot_is_and_what_the_upstream_is(run: Run, folder: Path) -> None:
    for name in ("snapshot", "changes"):
        (folder / name).mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "snapshot" / "a.parquet")
    with typed(refused(run, "init", "--changes", "changes")) as hint:
        hint.says("add --from PLACE, where the data is")
        (folder / "changes" / "1.json").write_text('{"op": "c", "after": {"id": 2}, "source": {"table": "t"}}\n')
        done = run("init", "--changes", "changes", "--from", "snapshot")
        assert done.exit_code == 0, done.output
    with typed(refused(run, "init", "other.toml", "--upstream", "mysql")) as hint:
        assert "--upstream" in hint.options()
        for kind in registry.known(registry.UPSTREAMS):
            assert run("init", f"{kind}.toml", "--upstream", kind).exit_code == 0


def test_a_word_that_is_no_command_leads_to_the_help(run: Run) -> None:
    done = CliRunner().invoke(app, ["pasue"], prog_name="backfill")
    with typed(done.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("backfill --help")
        assert run("--help").exit_code == 0
    done = CliRunner().invoke(app, ["pause", "--al"], prog_name="backfill")
    with typed(done.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("backfill pause --help")
        assert run("pause", "--help").exit_code == 0
    done = CliRunner().invoke(app, ["throttle", "--rate", "--wait"], prog_name="backfill")
    with typed(done.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("backfill throttle --help")
        assert run("throttle", "--help").exit_code == 0


def test_metrics_go_to_a_file_or_port_that_there_is(folder: Path) -> None:
    def kept(act: Callable[[], Any]) -> None:
        with act():
            pass

    look: Any = list
    with typed(error_of(lambda: kept(lambda: _written(look, folder)))) as hint:
        hint.says("name a file in an existing, writable folder")
        kept(lambda: _written(look, folder / "m.prom"))
    with typed(error_of(lambda: kept(lambda: _served(look, "http")))) as hint:
        assert hint.options()["--metrics-port"].isdecimal()
        kept(lambda: _served(look, free()))
    port = free()
    with _served(look, port), typed(error_of(lambda: kept(lambda: _served(look, port)))) as hint:
        hint.says("name a free port")
        kept(lambda: _served(look, free()))


def free() -> str:
    return str(free_port())


def test_a_log_that_cannot_be_written_is_made_writable(folder: Path) -> None:
    log = folder / "orders.log"
    log.mkdir()
    with typed(error_of(lambda: _opened(log))) as hint:
        hint.says("make the log writable")
        log.rmdir()
        _opened(log).close()


def test_connectors_are_named_as_they_are_known() -> None:
    with typed(error_of(lambda: registry.upstream("mysql"))) as hint:
        hint.says("name one of them")
        assert registry.upstream("files")
    for pair in (("kafka", "files"), ("files", "delta")):
        with typed(error_of(lambda pair=pair: registry.two_systems(*pair))) as hint:  # type: ignore[misc]
            hint.says("name two that can be combined, for example files and kafka")
            assert registry.two_systems("files", "kafka")


def test_a_job_is_named_where_there_are_several_or_none_is_active(run: Run, catalog: Catalog) -> None:
    make_job(catalog, "second")
    for name in ("orders", "second"):
        with catalog.claim(name, "test", 5) as claim:
            claim.store.become(JobState.RUNNING, "")
    with typed(refused(run, "pause")) as hint:
        hint.says("name one of them, for example: orders")
        assert run("pause", "orders").exit_code == 0
    for name in ("orders", "second"):
        end_job_of(catalog, name)
    with typed(refused(run, "pause")) as hint:
        hint.says("name the job")
        assert run("status", "orders").exit_code == 0


def end_job_of(catalog: Catalog, name: str) -> None:
    with catalog.claim(name, "test", 5) as claim:
        claim.store.become(JobState.FAILED, "it broke")


def test_a_job_is_named_by_a_name(run: Run, folder: Path) -> None:
    file = Path(write_config(folder))
    with typed(error_of(lambda: check_name("a job"))) as hint:
        hint.says("name it in the config: [job] name")
        file.write_text(file.read_text().replace('name = "orders"', 'name = "a_job"', 1))
        told = json.loads(run("config", "show", str(file), "--json").stdout)["options"]
        assert check_name(next(one["value"] for one in told if one["path"] == "job.name")) == "a_job"
