"""How settings reach the driver: in a private file, never in argv. What is said of one that was killed."""

import os
import stat
import subprocess
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import Fatal, Held, SparkEnded, Transient, UsageError, command
from backfill_cli.spark import driver, opening
from backfill_cli.spark.java import find_java
from backfill_cli.spark.table_formats import session_settings


def properties(text: str) -> dict[str, str]:
    """What Java's Properties.load reads from a file without comments and continued lines."""
    return dict(_entry(line) for line in text.splitlines())


def _entry(line: str) -> tuple[str, str]:
    units: list[int] = []
    key: list[int] | None = None
    at = 0
    while at < len(line):
        if line[at : at + 2] == "\\u":
            units.append(int(line[at + 2 : at + 6], 16))
            at += 6
        elif line[at] == "\\":
            units.append(ord({"n": "\n", "r": "\r", "t": "\t"}.get(line[at + 1], line[at + 1])))
            at += 2
        elif line[at] in "=: " and key is None:
            key, units = units, []
            at += 1
        else:
            units.append(ord(line[at]))
            at += 1
    assert key is not None
    return _text(key), _text(units)


def _text(units: list[int]) -> str:
    return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_settings_survive_the_file_whatever_they_hold(conf: dict[str, str]) -> None:
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")

    with driver._submit_arguments(conf):
        file = Path(os.environ["PYSPARK_SUBMIT_ARGS"].split()[1])
        text = file.read_text("ascii")

    assert properties(text) == conf
    assert not file.exists()
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before


def test_secrets_stay_out_of_argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")

    with driver._submit_arguments({"spark.hadoop.fs.s3a.secret.key": "canary"}):
        arguments = os.environ["PYSPARK_SUBMIT_ARGS"]
        file = Path(arguments.split()[1])
        mode = stat.S_IMODE(file.stat().st_mode)
        folder = stat.S_IMODE(file.parent.stat().st_mode)

    assert "canary" not in arguments
    assert arguments.endswith("--verbose pyspark-shell")
    assert (mode & 0o077, folder & 0o077) == (0, 0)
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Iterator["subprocess.Popen[bytes]"]:
    """What stands for the driver's process; it has ended with the test."""
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr(driver, "_started", [SimpleNamespace(proc=process)])
        monkeypatch.setattr(driver, "last_words", lambda: "")
        yield process
        process.kill()


def test_a_driver_that_ended_before_a_job_began_is_no_cause_of_its_failure(
    java: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_is_there", lambda: False)
    java.kill()
    java.wait()
    of_this_job = opening.Opening(lambda: pytest.fail("nobody needs it"))
    with pytest.raises(UsageError, match="of this job alone"), driver.explained(command("resume orders")):
        raise UsageError("of this job alone", "correct it")
    of_this_job.close()


def test_a_driver_that_runs_or_was_started_by_another_process_has_not_ended(
    java: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver.ended() is None
    with pytest.raises(ConnectionRefusedError), driver.explained(command("resume orders")):
        raise ConnectionRefusedError(111, "Connection refused")
    monkeypatch.setattr(driver, "_started", [SimpleNamespace(proc=None)])
    assert driver.ended() is None


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(111, "Connection refused"), Transient("Spark: Connection refused", "it is retried")],
)
def test_what_fails_because_java_was_killed_says_so(java: "subprocess.Popen[bytes]", error: Exception) -> None:
    java.kill()  # not waited for: that the process has ended can show after its connections are closed
    if isinstance(error, Transient):  # those that are tried again come long after
        java.wait()
    with (
        pytest.raises(SparkEnded) as ended,
        driver.explained(driver.AGAIN),
        driver.explained(command("resume orders")),
    ):
        raise error
    said = f"Spark's Java process (pid {java.pid}) ended by SIGKILL: it was killed, or ran out of memory"
    assert (ended.value.message, str(ended.value.hint)) == (said, "backfill resume orders")
    assert ended.value.exit_code == 6
    assert ended.value.__cause__ is error


def test_an_error_of_ours_does_not_wait_for_java_to_end(
    java: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "NOTICED_S", 60.0)
    began = time.monotonic()
    with pytest.raises(Transient), driver.explained(driver.AGAIN):
        raise Transient("the server does not answer", "start it")
    assert time.monotonic() - began < 30


def test_a_job_that_somebody_else_took_is_held_whatever_java_does(java: "subprocess.Popen[bytes]") -> None:
    java.kill()
    java.wait()
    with pytest.raises(Held), driver.explained(command("resume orders")):
        raise Held("job 'orders' was taken over")


def test_the_last_words_of_java_are_told_without_those_of_every_start(
    java: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(driver, "_started", [SimpleNamespace(proc=java)])
    java.kill()
    java.wait()
    with (tmp_path / "log").open("w+b") as log:
        monkeypatch.setattr(driver, "log", lambda: log)
        log.write(
            b'WARNING: Using incubator modules: jdk.incubator.vector\nSetting default log level to "WARN".\n'
        )
        gone = driver.ended()
        assert gone is not None
        assert gone.message.endswith("ran out of memory")
        log.write(b"Terminating due to java.lang.OutOfMemoryError: Java heap space\n")
        gone = driver.ended()
        assert gone is not None
        assert gone.message.endswith(
            "; its last words: Terminating due to java.lang.OutOfMemoryError: Java heap space"
        )


KILLED_ONCE = """#!/bin/sh
case "$*" in *org.apache.spark.launcher.Main*) exec {java} "$@";; esac
rm {here}/kill 2>/dev/null && kill -9 $$
exec {java} "$@"
"""


@pytest.fixture
def own_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A Java that is killed before it is ready if the file `kill` is in this folder, which it removes."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(KILLED_ONCE.format(java=find_java(os.environ).path, here=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(driver, "_started", [])
    monkeypatch.setattr(driver, "cache_folder", lambda _environ: tmp_path / "cache")
    with (tmp_path / "log").open("w+b") as log:
        monkeypatch.setattr(driver, "log", lambda: log)
        yield tmp_path
    driver.end(20)


@pytest.mark.seconds
def test_a_driver_that_does_not_start_starts_as_its_hint_says(own_java: Path) -> None:
    """Killed before it is ready; a setting that Java refuses; jars that cannot be downloaded."""
    (own_java / "settings.xml").write_text(NOWHERE)
    ivy = {"spark.jars.ivySettings": str(own_java / "settings.xml"), "spark.jars.ivy": str(own_java / "ivy")}
    lake = session_settings(("delta",), ivy)
    (own_java / "kill").touch()
    killed, wrong, lacking = map(not_started, ({}, {"spark.driver.memory": "2x"}, lake))
    assert isinstance(killed, SparkEnded)
    assert "it was killed, or ran out of memory" in killed.message
    assert "Invalid maximum heap size: -Xmx2x" in wrong.message
    assert "unresolved dependency: io.delta#delta-spark_4.1_2.13" in lacking.message
    with typed(killed) as again, typed(wrong) as corrected, typed(lacking) as given:
        again.says("run the command again")
        corrected.says("correct it in [spark.conf]")
        given.says("name the jars in [spark.conf]: 'spark.jars'")
        jar = own_java / "delta-spark.jar"
        zipfile.ZipFile(jar, "w").close()
        told = {"spark.driver.memory": "512m", "spark.jars": str(jar)}
        java = driver.start(session_settings(("delta",), told))
        assert java.jvm.java.lang.Runtime.getRuntime().maxMemory() < 600 << 20  # type: ignore[operator]


NOWHERE = """<ivysettings>
<settings defaultResolver="nowhere"/>
<resolvers><filesystem name="nowhere"><artifact pattern="/nowhere/[artifact].[ext]"/></filesystem></resolvers>
</ivysettings>
"""


def not_started(conf: Mapping[str, str]) -> Fatal:
    driver.log().truncate(0)
    with pytest.raises(Fatal) as caught:
        driver.start(conf)
    return caught.value
