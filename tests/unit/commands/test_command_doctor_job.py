"""doctor: what it finds of a catalog, of its jobs and of a job that is about to start."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from command_builders import CONFIG, Run, end_job, write_config
from doctor_checks import found, installed, java, tree
from hint_typed import typed
from toy_registry import running

from backfill_cli.catalog import Catalog, lease
from backfill_cli.catalog.store import Store
from backfill_cli.engine import doctor
from backfill_cli.engine.job import machine
from backfill_cli.errors import Hint, HistoryGone, Transient, UsageError, command
from backfill_cli.model.job import JobState
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import Position
from backfill_cli.model.reports import PlannedTable, PlanReport, Refusal
from backfill_cli.model.upstream import PendingStart, Pin

__all__ = ["java"]

pytestmark = pytest.mark.seconds

TABLE = PlannedTable("orders", "orders", ("id",), 4, 40, 4_000)
PLAN = PlanReport("orders", "snapshot", "x", (TABLE,), "0", retention="its files, until they are read")


def planned(monkeypatch: pytest.MonkeyPatch, report: PlanReport = PLAN) -> None:
    monkeypatch.setattr(doctor, "plan", lambda *_, **__: report)


def test_a_catalog_is_looked_at_as_it_is(run: Run, catalog: Catalog, folder: Path) -> None:
    catalog.path.chmod(0o644)
    before = tree(folder), catalog.path.read_bytes()
    checks = found(run)
    assert (tree(folder), catalog.path.read_bytes()) == before
    assert stat.S_IMODE(catalog.path.stat().st_mode) == 0o644
    (private,) = checks["permissions"]
    assert (private["status"], private["fix"].split(";")[0]) == ("warning", f"chmod 600 {catalog.path}")
    assert checks["jobs"][0]["said"].startswith("1 in ")


def test_a_catalog_of_another_version_is_not_brought_to_this_one(run: Run, catalog: Catalog, folder: Path) -> None:
    with Store(catalog.path).writing() as db:
        db.execute("DELETE FROM catalog_version WHERE version = (SELECT max(version) FROM catalog_version)")
        db.execute("ALTER TABLE jobs DROP COLUMN aside")  # what the last version added
    before = catalog.path.read_bytes()
    assert "because of the failures above" in found(run, write_config(folder))["plan"][0]["said"]
    (told,) = found(run)["jobs"]
    assert "this backfill needs version" in told["said"]
    assert catalog.path.read_bytes() == before
    with pytest.raises(UsageError) as refused:
        catalog.look()
    assert str(refused.value.hint) == told["fix"]
    with typed(refused.value) as hint:
        (command,) = hint.commands()
        assert run(*command).exit_code == 0
        assert found(run)["jobs"][0]["status"] == "ok"


def test_a_runner_that_died_is_named_with_the_way_on(run: Run, catalog: Catalog) -> None:
    with Store(catalog.path).writing() as db:
        lease.write(db, "orders", lease.Lease(1, "cli", lease.this_host(), 4711, 1, 2))
    (left,) = found(run, "--catalog", str(catalog.path))["jobs"]
    assert left["status"] == "warning"
    assert "its runner, pid 4711" in left["said"]
    assert left["fix"] == f"backfill resume orders --catalog {catalog.path}"


def test_the_schema_registries_of_upstream_and_sink_are_asked(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch)
    upstream = """[upstream]
type = "kafka"
bootstrap_servers = "127.0.0.1:1"
topic = "orders"
value = { schema = "id BIGINT" }
registry = { url = "%s" }
"""
    sink = """[sink]
type = "kafka"
bootstrap_servers = "127.0.0.1:1"
encoding = "avro"
registry = { url = "%s" }
"""
    job, tables = CONFIG.split("[upstream")[0], CONFIG.partition("[[tables]]")[2].partition("[sink]")
    file = folder / "registry.toml"
    for name, at in (("schema registry", "upstream"), ("sink registry", "sink")):
        with running() as toy:
            toy.add("orders-value", '"string"')
            if at == "upstream":
                text = f"{job}{upstream % toy.url}[[tables]]{''.join(tables)}"
            else:
                text = f"{CONFIG.partition('[sink]')[0]}{sink % toy.url}"
            file.write_text(text)
            (told,) = found(run, "--config", str(file))[name]
            assert (told["status"], told["said"]) == ("ok", f"{toy.url} answers: 1 subject")
            assert toy.asked == ["GET /subjects", "GET /subjects/orders-value/versions/latest"]
        (told,) = found(run, "--config", str(file))[name]
        assert told["status"] == "failed"
        assert told["said"].startswith(f"{toy.url}: the schema registry does not answer")
        assert f"{at}.registry.url" in told["fix"]


def test_a_job_that_failed_is_what_is_wrong_with_its_config_and_a_warning_elsewhere(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch)
    file = write_config(folder)
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine("{}", "forever", file)
    way_on = "correct it; then: " + command("start --config FILE")
    end_job(catalog, "orders", JobState.FAILED, Limit("b.json: line 3: not JSON", hint=way_on))
    checks = found(run, file)
    (told,) = checks["job"]
    assert (told["status"], told["said"]) == ("failed", "job 'orders' failed: b.json: line 3: not JSON")
    assert told["fix"] == f"correct it; then: backfill start --config {file}"
    assert checks["plan"][0]["said"].endswith("; start would continue where it failed")
    elsewhere, _ = found(run)["jobs"]
    assert (elsewhere["status"], elsewhere["fix"]) == ("warning", told["fix"])


@pytest.mark.parametrize(
    ("job", "fix"),
    [
        ("orders", "backfill resume orders"),
        ("cut", "start it again with its config, or: backfill drop cut --confirm cut"),
        ("named", "backfill start --config other.toml, or: backfill drop named --confirm named"),
    ],
)
def test_a_start_that_was_killed_is_named_with_a_way_on_that_can_be_typed(
    run: Run, catalog: Catalog, folder: Path, job: str, fix: str
) -> None:
    """The job is there; or it is not, and nobody noted its file; or it is that of the config at hand."""
    (folder / "other.toml").write_text(CONFIG.replace('"orders"', '"named"', 1))
    catalog.starts.begin(PendingStart(job, "m", "{}", Pin(Position(), None, None, ()), 1))
    checks = found(run, *(["other.toml"] if job == "named" else []), "--catalog", str(catalog.path))["jobs"]
    told = [one["fix"] for one in checks if "did not complete" in one["said"]]
    assert [one.replace(f" --catalog {catalog.path}", "") for one in told] == [fix]


def test_a_missing_extra_fails_only_the_job_that_needs_it(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_version", lambda name: None if name == "confluent-kafka" else installed(name))
    planned(monkeypatch)
    assert found(run)["extra kafka"][0]["status"] == "ok"
    assert found(run, write_config(folder))["extra kafka"][0]["status"] == "ok"
    text = '[job]\nname = "o"\n[upstream]\ntype = "kafka"\nbootstrap_servers = "h:1"\ntopic = "o"\n'
    text += 'value = { format = "events", schema = "id BIGINT" }\n'
    text += '[[tables]]\nname = "o"\n[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
    checks = found(run, write_config(folder, text))
    assert (checks["extra kafka"][0]["status"], checks["extra kafka"][0]["fix"]) == (
        "failed",
        "pip install 'backfill-cli[kafka]'",
    )
    assert checks["plan"][0]["status"] == "warning", "what cannot run is not tried"


def test_a_config_with_faults_fails_with_all_of_them(run: Run, folder: Path) -> None:
    (check,) = found(run, write_config(folder, "[job]\nname = 'A B'\n"))["config"]
    assert check["status"] == "failed"
    assert "job.name: a job's name" in check["said"]
    assert "upstream: missing" in check["said"]


def test_what_plan_says_becomes_checks(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch)
    checks = found(run, write_config(folder))
    assert checks["plan"][0]["said"] == "strategy snapshot, 40 rows, 3.9 KB; nothing that start would refuse"
    assert checks["retention"][0]["said"] == "the upstream must keep its files, until they are read"
    assert "the whole snapshot" in checks["staging"][0]["said"]
    refusal = Refusal("t has rows", Hint.of("--into-existing"))
    planned(monkeypatch, replace(PLAN, refused=(refusal,), warnings=("no index",)))
    refused, warned = found(run, write_config(folder))["plan"]
    assert (refused["status"], refused["said"], refused["fix"]) == ("failed", "t has rows", "--into-existing")
    assert (warned["status"], warned["said"]) == ("warning", "no index")


def test_what_plan_raises_is_a_check_that_failed(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, name in (
        (Transient("h:1 does not answer", "start it"), "plan"),
        (HistoryGone("gone", "x"), "retention"),
    ):

        def plan(*_: object, error: Exception = error, **__: object) -> PlanReport:
            raise error

        monkeypatch.setattr(doctor, "plan", plan)
        assert [one["status"] for one in found(run, write_config(folder))[name]] == ["failed"]
