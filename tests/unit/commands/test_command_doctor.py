"""doctor: what it finds of this machine, of a catalog's place and of a job, and that it leaves nothing behind."""

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_builders import CONFIG, Run, end_job, write_config

from backfill_cli.catalog import Catalog, lease
from backfill_cli.catalog.store import Store
from backfill_cli.engine.doctor import job as of_job
from backfill_cli.engine.doctor import machine, place
from backfill_cli.errors import HistoryGone, Transient
from backfill_cli.model.begun import Begun
from backfill_cli.model.checkup import Status
from backfill_cli.model.job import JobState
from backfill_cli.model.plan_report import PlannedTable, PlanReport
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin
from backfill_cli.spark.java import Java

pytestmark = pytest.mark.seconds

OK, WARNING, FAILED = Status.OK, Status.WARNING, Status.FAILED
TABLE = PlannedTable("orders", "orders", ("id",), 4, 40, 4_000)
PLAN = PlanReport("orders", "snapshot", "x", (TABLE,), "0", retention="its files, until they are read")


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that is there and runs."""
    monkeypatch.setattr(machine, "find_java", lambda env: Java(Path("/opt/java/bin/java"), 21, "21 Acme"))
    monkeypatch.setattr(machine, "asked", lambda path: "21")


def found(run: Run, *words: str) -> dict[str, list[dict[str, Any]]]:
    """The checks by name."""
    done = run("doctor", "--json", *words)
    told = json.loads(done.stdout)
    assert done.exit_code == (0 if told["ok"] else 1), done.stderr
    by_name: dict[str, list[dict[str, Any]]] = {}
    for check in told["checks"]:
        by_name.setdefault(check["name"], []).append(check)
    return by_name


def planned(monkeypatch: pytest.MonkeyPatch, report: PlanReport = PLAN) -> None:
    monkeypatch.setattr(of_job, "plan", lambda config, catalog: report)


def tree(folder: Path) -> Mapping[Path, tuple[int, int]]:
    """Locks are no state."""
    kept = [file for file in folder.rglob("*") if file.suffix not in (".lock", ".queue")]
    return {file: (file.stat().st_mode, file.stat().st_size) for file in kept}


def test_without_a_config_the_machine_alone_is_looked_at_and_nothing_stays(run: Run, folder: Path) -> None:
    write_config(folder)
    before = tree(folder)
    checks = found(run)
    assert tree(folder) == before
    assert set(checks) >= {"java", "python", "pyspark", "pyarrow", "duckdb", "catalog", "lock", "disk", "clock"}
    assert not {"config", "plan", "staging"} & set(checks)
    assert (
        checks["java"][0]["said"]
        == f"Java 21, /opt/java/bin/java, from {'JAVA_HOME' if 'JAVA_HOME' in os.environ else 'PATH'}"
    )
    assert "can be created" in checks["catalog"][0]["said"]


def test_a_catalog_is_looked_at_as_it_is(run: Run, catalog: Catalog, folder: Path) -> None:
    catalog.path.chmod(0o644)
    before = tree(folder), catalog.path.read_bytes()
    checks = found(run)
    assert (tree(folder), catalog.path.read_bytes()) == before
    assert stat.S_IMODE(catalog.path.stat().st_mode) == 0o644
    (private,) = checks["permissions"]
    assert (private["status"], private["fix"].split(",")[0]) == ("warning", f"chmod 600 {catalog.path}")
    assert checks["jobs"][0]["said"].startswith("1 in ")


def test_a_line_a_check_with_its_fix_below_and_the_exit_code(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_version", lambda name: "0.1" if name == "duckdb" else metadata.version(name))
    done = run("doctor")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("failed"))
    assert lines[at].split() == ["failed", "duckdb", "duckdb", "is", "0.1,", "but", "has", "to", "be", "<3,>=2"]
    assert lines[at + 1].strip() == "Try: pip install 'duckdb<3,>=2'"
    assert done.stderr.strip().endswith("1 failed")


def test_a_catalog_of_another_version_is_not_brought_to_this_one(run: Run, catalog: Catalog, folder: Path) -> None:
    with Store(catalog.path).writing() as db:
        db.execute("DELETE FROM catalog_version WHERE version = (SELECT max(version) FROM catalog_version)")
    before = catalog.path.read_bytes()
    assert "because of the failures above" in found(run, write_config(folder))["plan"][0]["said"]
    assert "this backfill needs version" in found(run)["jobs"][0]["said"]
    assert catalog.path.read_bytes() == before


def test_a_runner_that_died_is_named_with_the_way_on(run: Run, catalog: Catalog) -> None:
    with Store(catalog.path).writing() as db:
        lease.write(db, "orders", lease.Lease(1, "cli", lease.this_host(), 4711, 1, 2))
    (left,) = found(run, "--catalog", str(catalog.path))["jobs"]
    assert left["status"] == "warning"
    assert "its runner, pid 4711" in left["said"]
    assert left["fix"] == f"backfill resume orders --catalog {catalog.path}"


def test_a_job_that_failed_is_what_is_wrong_with_its_config_and_a_warning_elsewhere(
    run: Run, catalog: Catalog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch)
    file = write_config(folder)
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine("{}", "forever", file)
    way_on = "correct it; then: backfill start --config FILE"
    end_job(catalog, "orders", JobState.FAILED, f"b.json: line 3: not JSON; to continue: {way_on}")
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
    catalog.starts.begin(Begun(job, "m", "{}", Pin(Position(), None, None, ()), 1))
    checks = found(run, *(["other.toml"] if job == "named" else []), "--catalog", str(catalog.path))["jobs"]
    told = [one["fix"] for one in checks if "did not complete" in one["said"]]
    assert [one.replace(f" --catalog {catalog.path}", "") for one in told] == [fix]


def test_a_clock_behind_what_the_catalog_has_seen_is_told(run: Run, catalog: Catalog) -> None:
    with Store(catalog.path).writing() as db:
        later_ms = time.time_ns() // 1_000_000 + 3_600_000
        lease.write(db, "orders", lease.Lease(1, "cli", "far", 4711, 1, later_ms))
    (clock,) = found(run)["clock"]
    assert (clock["status"], "1h" in clock["said"] or "59m" in clock["said"]) == ("warning", True)


def test_a_folder_that_cannot_be_written_fails(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(place.tempfile, "mkstemp", refused)
    assert [one["status"] for one in found(run)["catalog"]] == ["failed"]


@pytest.mark.parametrize("kept", [False, None], ids=["keeps nobody out", "no flock"])
def test_a_file_system_without_our_lock_fails(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, kept: bool | None
) -> None:
    def flock(handle: int, how: int) -> None:
        if kept is None:
            raise OSError(95, "Operation not supported")

    monkeypatch.setattr(place.fcntl, "flock", flock)
    (lock,) = found(run)["lock"]
    assert lock["status"] == "failed"
    assert list(folder.iterdir()) == []


def test_a_full_disk_fails_and_little_room_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((0, FAILED), (1 << 20, WARNING), (1 << 40, OK)):
        monkeypatch.setattr(place.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))  # noqa: B023
        assert place.room("disk", tmp_path / "not" / "there").status is status
    assert place.room("staging", tmp_path, 1 << 41, "the snapshot").status is WARNING


@pytest.mark.parametrize(
    ("version", "bounds", "fits"),
    [
        ("4.1.4", "<4.2,>=4.1.4", True),
        ("4.2.0", "<4.2,>=4.1.4", False),
        ("4.1.3", "<4.2,>=4.1.4", False),
        ("2.0", ">=2,<3", True),
        ("2", ">=2.0.0", True),
        ("3.0.0", ">=2,<3", False),
        ("10.0", ">=9", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, bounds: str, fits: bool) -> None:
    assert machine.fits(version, bounds) is fits


def test_what_is_required_is_what_the_package_says() -> None:
    required = machine.requirements()
    assert {one.extra for one in required} >= {"", "kafka", "postgres", "connect"}
    assert next(one for one in required if one.name == "psycopg").extra == "postgres"
    assert machine.fits(metadata.version("pyspark"), next(one for one in required if one.name == "pyspark").bounds)


def test_a_missing_extra_fails_only_the_job_that_needs_it(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        machine, "_version", lambda name: None if name == "confluent-kafka" else metadata.version(name)
    )
    planned(monkeypatch)
    assert found(run)["extra kafka"][0]["status"] == "ok"
    assert found(run, write_config(folder))["extra kafka"][0]["status"] == "ok"
    text = '[job]\nname = "o"\n[upstream]\ntype = "kafka"\nbootstrap_servers = "h:1"\ntopic = "o"\n'
    text += (
        'value = { schema = "id BIGINT" }\n[[tables]]\nname = "o"\n[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
    )
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
    assert checks["retention"][0]["said"] == "the upstream has to keep its files, until they are read"
    assert "the whole snapshot" in checks["staging"][0]["said"]
    planned(monkeypatch, replace(PLAN, refused=("t has rows. Try: --into-existing",), warnings=("no index",)))
    refused, warned = found(run, write_config(folder))["plan"]
    assert (refused["status"], refused["said"], refused["fix"]) == ("failed", "t has rows", "--into-existing")
    assert (warned["status"], warned["said"]) == ("warning", "no index")


def test_what_plan_raises_is_a_check_that_failed(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, name in (
        (Transient("h:1 does not answer", "start it"), "plan"),
        (HistoryGone("gone", "x"), "retention"),
    ):

        def plan(config: object, catalog: object, error: Exception = error) -> PlanReport:
            raise error

        monkeypatch.setattr(of_job, "plan", plan)
        assert [one["status"] for one in found(run, write_config(folder))[name]] == ["failed"]


class Watch:
    def __init__(self, *told: int) -> None:
        self._told = iter(told)

    def clock_ms(self) -> int:
        return next(self._told)

    def now_ms(self) -> int:
        return next(self._told)


@pytest.mark.parametrize(
    ("times", "said", "status"),
    [
        ((1_000, 1_010, 1_020), "within 0s of this machine's", OK),
        ((1_000, 61_010, 1_020), "1m ahead of this machine's", WARNING),
        ((90_000, 10, 90_020), "1m 30s behind this machine's", WARNING),
        ((1_000, 6_500, 11_000), "within 0.5s of this machine's", OK),
        ((1_000, 9_000, 11_000), "within 3s of this machine's", OK),
    ],
    ids=["same", "ahead", "behind", "slow answer", "slow answer, may be either"],
)
def test_a_systems_clock_is_compared_within_what_the_answer_took(
    times: tuple[int, int, int], said: str, status: Status
) -> None:
    watch = Watch(*times)
    check = of_job.clock("sink", watch, watch.now_ms)
    assert (check.said, check.status) == (said, status)


def test_the_machine_is_looked_at_without_spark(folder: Path) -> None:
    code = (
        "import sys, atexit\n"
        "heavy = {'pyspark', 'py4j'}\n"
        "atexit.register(lambda: print('IMPORTED', sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
        "sys.argv = ['backfill', 'doctor']\n"
        "from backfill_cli.main import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "IMPORTED []" in ended.stderr, ended.stderr
    assert list(folder.iterdir()) == []
