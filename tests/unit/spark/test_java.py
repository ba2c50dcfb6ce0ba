"""Which Java Spark gets, and the error if there is none."""

from pathlib import Path

import pytest
from hint_typed import typed

from backfill_cli.errors import UsageError
from backfill_cli.spark.java import find_java


def installed(home: Path, release: str | None = None, says: str = "") -> Path:
    """A stand-in for a Java at `home`: a program that prints `says`, and a release file."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)
    return home


def goes_on_with(new: Path, error: UsageError, env: dict[str, str]) -> None:
    """What apt-get puts there is found, whatever there was before."""
    with typed(error) as hint:
        hint.says("apt-get install openjdk-17-jre-headless")
        hint.says("let JAVA_HOME name it")
        home = new if new.exists() else installed(new, 'JAVA_VERSION="17.0.15"')
        assert find_java({**env, "JAVA_HOME": str(home)}).major == 17


def test_java_home_is_asked_before_path(tmp_path: Path) -> None:
    home = installed(tmp_path / "jdk", 'IMPLEMENTOR="Acme"\nJAVA_VERSION="21.0.2"\n')
    other = installed(tmp_path / "other", 'JAVA_VERSION="17"\n')

    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})

    assert (found.path, found.major) == (home / "bin/java", 21)
    assert "Acme" in found.described


def test_a_java_without_a_release_file_is_started_and_asked(tmp_path: Path) -> None:
    home = installed(tmp_path / "jdk", says='openjdk version "17.0.15" 2025-04-15')

    assert find_java({"PATH": str(home / "bin")}).major == 17


@pytest.mark.parametrize(
    ("release", "said"),
    [('JAVA_VERSION="11.0.2"\n', "is Java 11"), ('JAVA_VERSION="1.8.0_392"\n', "is Java 8"), ("", "its version")],
)
def test_a_java_that_is_too_old_is_refused_with_what_to_install(tmp_path: Path, release: str, said: str) -> None:
    home = installed(tmp_path / "jdk", release)

    for env in ({"JAVA_HOME": str(home)}, {"PATH": f"{home}/bin"}):
        with pytest.raises(UsageError, match=said) as caught:
            find_java(env)
        assert caught.value.exit_code == 2
        goes_on_with(tmp_path / "17", caught.value, env)


def test_no_java_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no java on PATH") as caught:
        find_java({"PATH": str(tmp_path)})
    goes_on_with(tmp_path / "17", caught.value, {"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no bin/java") as caught:
        find_java({"JAVA_HOME": str(tmp_path)})
    goes_on_with(tmp_path / "17", caught.value, {"JAVA_HOME": str(tmp_path)})


def test_a_java_that_does_not_run_is_said(tmp_path: Path) -> None:
    home = installed(tmp_path / "jdk")
    (home / "bin/java").chmod(0o644)

    with pytest.raises(UsageError, match="does not run") as caught:
        find_java({"JAVA_HOME": str(home)})
    goes_on_with(tmp_path / "17", caught.value, {"JAVA_HOME": str(home)})
