"""The class archive's place and the flags that use it; a missing or broken one does no harm."""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from backfill_cli.spark import class_data, class_data_maker, driver
from backfill_cli.spark.java import Java

JAVA = Java(Path("/usr/bin/java"), 17, "17.0.15 Acme")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(class_data.SWITCH, raising=False)
    return tmp_path / "backfill"


def file_for(java: Java = JAVA) -> Path:
    found = class_data.archive_file(java, {})
    assert found is not None
    return found


def test_the_archive_lives_in_the_users_cache_folder(cache: Path) -> None:
    assert file_for().parent == cache


def test_a_user_without_a_home_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As of cron, or of a container whose user no list has; jars are still fetched one process at a time."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda _uid: {}[_uid])
    assert class_data.archive_file(JAVA, {}) is None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for home in (None, "/proc"):
        if home is not None:
            monkeypatch.setenv("HOME", home)
        with driver._fetching({"spark.jars.packages": "a:b:1"}):
            assert [file.name for file in tmp_path.glob("*/*")] == ["fetching.lock"]
        (found,) = tmp_path.glob("*/*")
        found.unlink()


def test_another_java_has_another_archive() -> None:
    assert file_for() != file_for(Java(JAVA.path, 17, "17.0.16 Acme"))
    assert file_for() == file_for()


def test_classes_of_the_users_own_have_no_archive() -> None:
    assert class_data.archive_file(JAVA, {"spark.driver.extraClassPath": "/opt/mine.jar"}) is None


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(class_data.SWITCH, "off")

    assert class_data.archive_file(JAVA, {}) is None


def test_flags_name_an_archive_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "a.jsa"

    assert class_data.flags_to_use(None) == class_data.flags_to_use(file) == []
    file.touch()
    assert class_data.flags_to_use(file) == [], "an empty one says that Java could not make it"
    file.write_bytes(b"x")
    assert f'"-XX:SharedArchiveFile={file}"' in class_data.flags_to_use(file)


def test_only_one_process_makes_it(cache: Path) -> None:
    wanted = file_for()
    cache.mkdir()
    with FileLock(f"{wanted}.lock"):
        assert not class_data_maker.make(wanted)


def test_an_archive_that_is_there_is_not_made_again(cache: Path) -> None:
    wanted = file_for()
    cache.mkdir()
    wanted.write_bytes(b"x")

    assert class_data_maker.make(wanted)
    assert wanted.read_bytes() == b"x"


def test_it_is_made_by_a_java_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was lent one it would use the same, in which that run's Spark is, or the next one's."""
    seen: list[str | None] = []

    def opened(*_: object) -> None:
        seen.append(os.environ.get("PYSPARK_GATEWAY_PORT"))
        raise ConnectionRefusedError

    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(class_data_maker, "open_session", opened)
    with pytest.raises(ConnectionRefusedError):
        class_data_maker.make(file_for())
    assert seen == [None]


def test_old_archives_are_forgotten(cache: Path) -> None:
    cache.mkdir()
    for age in range(5):
        for name in (f"spark-{age}.jsa", f"spark-{age}.jsa.lock"):
            (cache / name).touch()
            os.utime(cache / name, (1000 - age, 1000 - age))

    class_data_maker._forget_old(cache)

    assert sorted(file.name for file in cache.glob("*.jsa")) == ["spark-0.jsa", "spark-1.jsa", "spark-2.jsa"]
    assert len(list(cache.glob("*.lock"))) == 3
