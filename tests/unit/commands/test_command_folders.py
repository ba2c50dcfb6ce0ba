"""Which folder a command works for: the config's, the current one; or, where that has nothing, what is nearby."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_builders import Run, make_job, write_config
from half_done import half_done, written
from hint_typed import typed

from backfill_cli.api.job import Job
from backfill_cli.api.moved import refuse_moved
from backfill_cli.catalog import Catalog
from backfill_cli.commands._options import catalog_of
from backfill_cli.config import load
from backfill_cli.engine.job.select import require_same
from backfill_cli.errors import UsageError, command
from backfill_cli.view.console import as_typed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder; beside it there is nothing."""
    made = tmp_path / "work"
    made.mkdir()
    monkeypatch.chdir(made)
    monkeypatch.delenv("BACKFILL_CATALOG", raising=False)
    return made


@pytest.fixture
def conf(folder: Path) -> Path:
    """A folder below the current one."""
    made = folder / "conf"
    made.mkdir()
    return made


def test_a_configs_catalog_is_beside_it_wherever_the_command_is_typed(folder: Path, conf: Path) -> None:
    write_config(conf)
    beside = conf / ".backfill/catalog.duckdb"
    assert catalog_of(Path("conf/job.toml"), "").path == beside
    assert catalog_of(conf / "job.toml", "").path == beside
    assert catalog_of(Path("conf/job.toml"), "c.duckdb").path == folder / "c.duckdb"
    assert catalog_of(Path("/dev/stdin"), "").path == folder / ".backfill/catalog.duckdb", "of a pipe"


def test_a_mounted_config_belongs_to_the_folder_of_its_name(folder: Path, conf: Path) -> None:
    """As Kubernetes mounts one: a link into a folder that is replaced."""
    write_config(conf)
    (folder / "job.toml").symlink_to("conf/job.toml")
    assert catalog_of(Path("job.toml"), "").path == folder / ".backfill/catalog.duckdb"
    (folder / "link").symlink_to("/usr/share")
    assert catalog_of(Path("link/../job.toml"), "").path == Path("/usr/.backfill/catalog.duckdb"), "as the system"


def test_hints_name_the_catalog_that_the_command_uses_whatever_the_config_is(folder: Path, conf: Path) -> None:
    write_config(conf)
    (folder.parent / "other" / "deep").mkdir(parents=True)
    write_config(folder.parent / "other")
    (folder / "link").symlink_to("../other/deep")
    for typed_file in ("conf/job.toml", str(conf / "job.toml"), "conf/../conf/job.toml", "link/../job.toml"):
        ctx = SimpleNamespace(
            params={"config": typed_file, "file": None, "catalog": ""},
            get_parameter_source=lambda _: SimpleNamespace(name="DEFAULT"),
        )
        ((*_, option, named),) = (one.words for one in as_typed(command("resume orders"), ctx).commands)
        assert option == "--catalog"
        assert Path(named).absolute() == catalog_of(Path(typed_file), "").path


@pytest.mark.parametrize("words", [["plan", "conf/job.toml"], ["start", "conf/job.toml"]], ids="_".join)
def test_a_job_in_the_catalog_of_the_current_folder_is_not_started_a_second_time(
    run: Run, folder: Path, conf: Path, catalog: Catalog, words: list[str]
) -> None:
    """As earlier versions created it. The first way on: the config is moved, and everything is as it was."""
    write_config(conf)
    refused = run(*words)
    assert refused.exit_code == 2
    assert "job 'orders' is in the catalog of the current folder, .backfill/catalog.duckdb;" in refused.stderr
    assert not (conf / ".backfill").exists()
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.run_in_shell("mv")
        assert catalog_of(Path("job.toml"), "").path == catalog.path


def test_a_killed_start_in_that_catalog_is_no_reason_to_look_for_its_job(folder: Path, conf: Path) -> None:
    """That it does not exist would send to the config's own catalog, which knows nothing of it."""
    write_config(conf)
    killed = Catalog(folder / ".backfill/catalog.duckdb")
    killed.starters.begin("orders", "me", "starting Spark", "{}", str(conf / "job.toml"))
    with pytest.raises(UsageError, match="is in the catalog of the current folder") as refused:
        refuse_moved("orders", conf / "job.toml", catalog_of(conf / "job.toml", ""), "")
    with typed(refused.value) as hint:
        hint.says("write its paths for its own folder, and name the catalog")
        (option, file, named, catalog) = hint.commands()[0][1:]
        assert (option, named, Path(catalog).absolute()) == ("--config", "--catalog", killed.path)
        refuse_moved("orders", Path(file), catalog_of(Path(file), catalog), catalog)


def test_its_config_is_the_same_however_it_is_spelled(folder: Path, conf: Path, catalog: Catalog) -> None:
    write_config(conf)
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine("{}", "forever", str(folder / "conf/../conf/job.toml"))
    with pytest.raises(UsageError, match="is in the catalog of the current folder"):
        refuse_moved("orders", conf / "job.toml", catalog_of(conf / "job.toml", ""), "")


@pytest.fixture
def moved(folder: Path, conf: Path) -> Catalog:
    """The catalog of the current folder with a job, whose sink knows it; its config is in a folder below."""
    config = written(folder)
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    half_done(config, catalog)
    config.open_sink().own("orders", catalog.made(), None)
    shutil.move(folder / "job.toml", conf)
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine(config.stored(), "forever", str(conf / "job.toml"))
    return catalog


def test_a_job_of_the_current_folder_is_the_same_by_a_config_elsewhere_that_names_its_catalog(
    run: Run, conf: Path, moved: Catalog
) -> None:
    (conf / "other").touch()
    with pytest.raises(UsageError, match="is in the catalog of the current folder"):
        Job.from_toml("conf/job.toml")
    refused = run("start", "conf/job.toml")
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        old = f'job.staging = "{Path.cwd()}/.backfill/staging"'
        hint.says(f"write its paths for its own folder, and set {old}, and name the catalog")
        text = (conf / "job.toml").read_text().replace('path = "', 'path = "../')
        (conf / "job.toml").write_text(f"{old}\n{text}".replace("[job]", "", 1).replace("name =", "job.name =", 1))
        ((_, *options),) = hint.commands()
        assert options == ["--config", "conf/job.toml", "--catalog", ".backfill/catalog.duckdb"]
        refuse_moved("orders", Path(options[1]), catalog_of(Path(options[1]), options[3]), options[3])
        require_same(moved.definition("orders"), load(Path(options[1])))


def test_the_staged_files_of_such_a_job_are_where_they_were_or_the_start_is_refused(
    run: Run, conf: Path, moved: Catalog
) -> None:
    (conf / "job.toml").write_text((conf / "job.toml").read_text().replace('path = "', 'path = "../'))
    refused = run("start", "conf/job.toml", "--catalog", str(moved.path))
    old, new = f"{Path.cwd()}/.backfill/staging", f"{conf}/.backfill/staging"
    assert f"job.staging is now {new}, but the job's staged files are in {old}" in refused.stderr
    assert not (conf / ".backfill").exists()
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says(f'set job.staging = "{old}"; or move {old}/orders to {new}/orders')
        text, job = (conf / "job.toml").read_text(), moved.definition("orders")
        (conf / "job.toml").write_text(text.replace("[job]", f'[job]\nstaging = "{old}"', 1))
        require_same(job, load(conf / "job.toml"))
        (conf / "job.toml").write_text(text)
        Path(new).mkdir(parents=True)
        Path(old, "orders").rename(Path(new, "orders"))
        require_same(job, load(conf / "job.toml"))


@pytest.mark.seconds
def test_from_a_third_folder_the_sink_refuses_a_second_job(
    run: Run, folder: Path, conf: Path, moved: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    (conf / "job.toml").write_text((conf / "job.toml").read_text().replace('path = "', 'path = "../'))
    (folder / "third").mkdir()
    monkeypatch.chdir(folder / "third")
    refused = run("start", "../conf/job.toml")
    assert refused.exit_code == 5, refused.stderr
    assert f"belongs to another catalog: {moved.path}" in refused.stderr
    assert not (conf / ".backfill/catalog.duckdb").exists()


def test_a_job_of_that_name_by_another_config_is_another_job(folder: Path, conf: Path, catalog: Catalog) -> None:
    write_config(conf)
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine("{}", "forever", str(folder / "job.toml"))
    refuse_moved("orders", Path("conf/job.toml"), catalog_of(Path("conf/job.toml"), ""), "")
    refuse_moved("other", Path("conf/job.toml"), catalog_of(Path("conf/job.toml"), ""), "")


def test_a_job_in_both_catalogs_is_that_beside_its_config(folder: Path, conf: Path, catalog: Catalog) -> None:
    make_job(catalog_of(Path(write_config(conf)), ""))
    refuse_moved("orders", conf / "job.toml", catalog_of(conf / "job.toml", ""), "")


@pytest.mark.parametrize("place", ["conf", "conf/deep", "other"])
def test_in_a_wrong_folder_the_catalogs_nearby_are_named(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The current folder is above, below or beside that of the job."""
    here = folder / "conf"
    here.mkdir()
    home = {"conf": here / "job", "conf/deep": folder, "other": folder / "other"}[place]
    make_job(Catalog(home / ".backfill/catalog.duckdb"))
    monkeypatch.chdir(here)
    for words in (["pause"], ["resume"], ["status"]):
        if home == folder and words == ["status"]:
            continue  # finds it
        told = run(*words)
        assert told.exit_code == (0 if words == ["status"] else 4)
        with typed(told.stderr.split("Try: ", 1)[1]) as hint:
            shown = [run(*one) for one in hint.commands()]
            assert any("orders" in one.stdout for one in shown), told.stderr
    assert not (here / ".backfill").exists()


def test_beside_a_config_its_start_comes_before_the_catalogs_nearby(
    run: Run, folder: Path, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a start that was refused, in a folder of several jobs."""
    write_config(conf)
    make_job(Catalog(folder / "other" / ".backfill/catalog.duckdb"))
    monkeypatch.chdir(conf)
    for words in (["pause"], ["verify"], ["status"], ["status", "orders"], ["stop", "orders"]):
        told = run(*words)
        assert told.exit_code == (0 if words == ["status"] else 4)
        with typed(told.stderr.split("Try: ", 1)[1]) as hint:
            start, other = hint.commands()
            assert start == ["start", "--config", "job.toml"]
            assert run("config", "show", *start[1:]).exit_code == 0
            assert "orders" in run(*other).stdout


def test_in_a_wrong_folder_the_configs_nearby_are_named(run: Run, conf: Path) -> None:
    write_config(conf)
    for words in (["plan"], ["start"], ["config", "show"]):
        with typed(run(*words).stderr.split("Try: ", 1)[1]) as hint:
            assert hint.options() == {"--config": "conf/job.toml"}
            assert run("config", "show", "--config", "conf/job.toml").exit_code == 0
    with typed(run("status", "orders").stderr.split("Try: ", 1)[1]) as hint:
        ((verb, *rest),) = hint.commands()
        assert (verb, rest) == ("start", ["--config", "conf/job.toml"])
        assert run("config", "show", *rest).exit_code == 0


def test_hints_after_a_config_elsewhere_name_its_catalog(conf: Path) -> None:
    """`status` in the current folder would not find it."""
    write_config(conf)
    said = command("resume orders", "start --config FILE")
    typed_as = SimpleNamespace(
        params={"config": "conf/job.toml", "file": None, "catalog": ""},
        get_parameter_source=lambda _: SimpleNamespace(name="DEFAULT"),
    )
    assert str(as_typed(said, typed_as)) == (
        "backfill resume orders --catalog conf/.backfill/catalog.duckdb; backfill start --config conf/job.toml"
    )


def test_a_folder_that_was_removed_is_named_as_the_cause(
    run: Run, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(conf)
    conf.rmdir()
    for words in (["init"], ["start", "job.toml"], ["status"]):
        refused = run(*words)
        said = "error: the current folder cannot be used: No such file or directory"
        assert (refused.exit_code, refused.stderr.splitlines()[0]) == (2, said)
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("change to another folder")
        monkeypatch.chdir(conf.parent)
        assert run("status").exit_code == 0


def test_a_user_without_a_home_gets_the_same_answers(
    run: Run, conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container's, whose number no list of users has."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda _uid: {}[_uid])
    write_config(conf)
    refused = run("start")
    assert "name it: --config conf/job.toml" in refused.stderr
    assert run("status").exit_code == 0
    write_config(Path.cwd())
    assert "already exists" in run("init").stderr


def test_a_name_that_is_too_long_is_refused_by_name(run: Run) -> None:
    assert "File name too long" in run("init", "a" * 300).stderr
