"""doctor: what it finds of this machine, its clock and a catalog's place, and that nothing stays behind."""

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_builders import Run, write_config
from doctor_checks import found, installed, java, tree
from half_done import half_done, written
from hint_typed import typed

from backfill_cli.catalog import Catalog, lease
from backfill_cli.catalog.store import Store
from backfill_cli.engine import doctor
from backfill_cli.engine.job import machine
from backfill_cli.model.reports import Status
from backfill_cli.tried import TRIED

__all__ = ["java"]

pytestmark = pytest.mark.seconds

OK, WARNING, FAILED = Status.OK, Status.WARNING, Status.FAILED


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


def test_a_line_a_check_with_its_fix_below_and_the_exit_code(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_version", lambda name: "0.1" if name == "duckdb" else installed(name))
    done = run("doctor")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("failed"))
    assert lines[at].split() == ["failed", "duckdb", "duckdb", "is", "0.1,", "but", "has", "to", "be", "<3,>=2"]
    assert lines[at + 1].strip() == "Try: pip install 'duckdb<3,>=2'"
    with typed(lines[at + 1].strip().removeprefix("Try: ")) as hint:
        hint.says("pip install 'duckdb<3,>=2'")
        monkeypatch.undo()
        assert [one.status for one in machine.checks(os.environ, frozenset()) if one.name == "duckdb"] == [OK]
    assert done.stderr.strip().endswith("1 failed")


@pytest.mark.parametrize(("package", "check"), [("pyarrow", "pyarrow"), ("psycopg", "extra postgres")])
def test_a_version_outside_what_was_tried_is_named_with_the_range_and_what_to_type(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, package: str, check: str
) -> None:
    lowest, newest = TRIED[package]
    monkeypatch.setattr(
        machine, "_version", lambda name: "99.1" if name == package else TRIED.get(name, ("9",))[0]
    )
    monkeypatch.setattr(machine, "import_module", lambda name: None)
    (told,) = found(run)[check]
    assert told["status"] == "warning"
    assert told["said"].startswith(f"{package} 99.1 was not tried with this release")
    assert told["said"].endswith(f"tested with {lowest} to {newest}")
    assert told["fix"] == f"pip install '{package}>={lowest},<={newest}'"
    with typed(told["fix"]) as hint:
        hint.says("pip install")
        for version in (lowest, newest):  # what pip would choose from
            monkeypatch.setattr(machine, "_version", lambda name, it=version: it if name == package else None)
            assert machine._untried(next(one for one in machine.requirements() if one.name == package)) is None
    monkeypatch.setattr(
        machine, "_version", lambda name: "99.1" if name == package else TRIED.get(name, ("9",))[0]
    )
    half_done(written(folder), Catalog(folder / ".backfill/catalog.duckdb"))
    file = folder / "job.toml"
    file.write_text(file.read_text().replace("[job]\n", '[job]\nstrategy = "source"\n'))
    started = run("start", "--config", "job.toml")
    assert started.exit_code == 2  # for the strategy, which is another one: before it needs Spark
    assert ("99.1 was not tried" in started.stderr) == (package == "pyarrow")  # the job uses no PostgreSQL


def test_every_version_at_both_ends_of_what_was_tried_is_taken_without_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for end in (0, 1):
        monkeypatch.setattr(machine, "_version", lambda name, end=end: TRIED[name][end])
        assert machine.untried(frozenset({"connect", "delta", "iceberg", "kafka", "postgres"})) == []


def test_a_clock_behind_what_the_catalog_has_seen_is_told(run: Run, catalog: Catalog) -> None:
    with Store(catalog.path).writing() as db:
        later_ms = time.time_ns() // 1_000_000 + 3_600_000
        lease.write(db, "orders", lease.Lease(1, "cli", "far", 4711, 1, later_ms))
    (clock,) = found(run)["clock"]
    assert (clock["status"], "1 h" in clock["said"] or "59 m" in clock["said"]) == ("warning", True)
    with typed(clock["fix"]) as hint, pytest.MonkeyPatch.context() as patch:
        hint.says("set the clocks (ntp)")
        patch.setattr(time, "time_ns", lambda: (later_ms + 1) * 1_000_000)
        assert doctor._clock(later_ms + 1, later_ms + 1, catalog.look(), catalog.path).status is OK


def test_a_folder_that_cannot_be_written_fails(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "mkstemp", refused)
    (told,) = found(run)["catalog"]
    assert told["status"] == "failed"
    with typed(told["fix"]) as hint:
        monkeypatch.undo()
        hint.run_in_shell("chmod")
        (there,) = [
            one for one in doctor.of_place(Catalog(folder / "catalog.duckdb"), None) if one.name == "catalog"
        ]
        assert there.status is OK


@pytest.mark.parametrize("kept", [False, None], ids=["keeps nobody out", "no flock"])
def test_a_file_system_without_our_lock_fails(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, kept: bool | None
) -> None:
    def flock(handle: int, how: int) -> None:
        if kept is None:
            raise OSError(95, "Operation not supported")

    monkeypatch.setattr(doctor.fcntl, "flock", flock)
    (lock,) = found(run)["lock"]
    assert lock["status"] == "failed"
    assert list(folder.iterdir()) == []
    with typed(lock["fix"]) as hint:
        monkeypatch.undo()
        assert hint.options() == {"--catalog": "FILE"}
        assert found(run, "--catalog", "elsewhere.duckdb")["lock"][0]["status"] == "ok"


def test_a_full_disk_fails_and_little_room_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((0, FAILED), (1 << 20, WARNING), (1 << 40, OK)):
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))  # noqa: B023
        check = doctor.room("disk", tmp_path / "not" / "there")
        assert check.status is status
        if check.fix:
            with typed(check.fix) as hint:
                hint.says("free disk space there")
                monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 40))
                assert doctor.room("disk", tmp_path).status is OK
    assert doctor.room("staging", tmp_path, 1 << 41, "the snapshot").status is WARNING


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
        ((1_000, 1_010, 1_020), "within 0 s of this machine's", OK),
        ((1_000, 61_010, 1_020), "1 m ahead of this machine's", WARNING),
        ((90_000, 10, 90_020), "1 m 30 s behind this machine's", WARNING),
        ((1_000, 6_500, 11_000), "within 0.5 s of this machine's", OK),
        ((1_000, 9_000, 11_000), "within 3 s of this machine's", OK),
    ],
    ids=["same", "ahead", "behind", "slow answer", "slow answer, may be either"],
)
def test_a_systems_clock_is_compared_within_what_the_answer_took(
    times: tuple[int, int, int], said: str, status: Status
) -> None:
    watch = Watch(*times)
    check = doctor.clock("sink", watch.clock_ms, watch.now_ms)
    assert (check.said, check.status) == (said, status)
    if check.fix:
        with typed(check.fix) as hint:
            hint.says("set the clocks (ntp)")
            watch = Watch(5, 5, 5)
            assert doctor.clock("sink", watch.clock_ms, watch.now_ms).status is OK


def test_the_clock_of_a_file_system_is_compared_with_this_machines(tmp_path: Path) -> None:
    apart = doctor._clock(1_000, 61_000, (), tmp_path)
    assert (apart.status, "1 m apart" in apart.said) == (WARNING, True)
    with typed(apart.fix) as hint:
        hint.says("set the clocks (ntp)")
        assert doctor._clock(61_000, 61_000, (), tmp_path).status is OK


def test_an_old_python_is_named_with_one_that_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.sys, "version_info", (3, 9, 1))
    told = machine._python()
    assert told.status is FAILED
    with typed(told.fix) as hint:
        hint.says("python3.12 -m venv .venv")
        monkeypatch.setattr(machine.sys, "version_info", (3, 12, 0))
        assert machine._python().status is OK


def test_an_extra_that_a_job_needs_is_installed_by_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [one for one in machine.requirements() if one.extra == "kafka"]
    monkeypatch.setattr(machine, "_version", lambda _: None)
    told = machine._extra("kafka", parts, needed=True)
    assert told.status is FAILED
    with typed(told.fix) as hint:
        hint.says("pip install 'backfill-cli[kafka]'")
        monkeypatch.undo()
        assert machine._extra("kafka", parts, needed=True).status is OK


def test_a_catalog_that_others_can_read_is_made_private_by_the_fix(run: Run, catalog: Catalog) -> None:
    catalog.path.chmod(0o644)
    (told,) = found(run)["permissions"]
    assert told["status"] == "warning"
    with typed(told["fix"]) as hint:
        hint.run_in_shell("chmod")
        assert found(run)["permissions"][0]["status"] == "ok"


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
