"""Failures of files: which error each becomes, and that its hint, typed, lets the file be read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BackfillError, BadData, Fatal, Transient
from backfill_cli.spark.failures import SAME_PACKAGE, from_spark, reading
from backfill_cli.upstreams.files import connector

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so it is not root that reads."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def parquet(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2, 3]}), path)
    return path


def pinned(folder: Path) -> list[str]:
    """The files of a snapshot that a job reads there."""
    options = connector.options.model_validate({"snapshot": {"path": str(folder), "format": "parquet"}})
    return [split.id for split in connector.open(options, [TableSpec("t", ("id",))]).pin().splits]


def read(path: Path) -> int:
    with as_nobody(), reading(str(path), "parquet"), path.open("rb") as file:
        return int(pq.read_table(pa.BufferReader(file.read())).num_rows)


def refused(path: Path, kind: type[BackfillError], said: str) -> BackfillError:
    with pytest.raises(kind, match=said) as caught:
        read(path)
    return caught.value


@pytest.fixture
def file() -> Iterator[Path]:
    """A whole file that everybody may read: pytest's own folders are closed to others."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield parquet(Path(folder) / "a.parquet")


def test_a_file_that_is_gone_or_no_file_any_more_is_restored(file: Path) -> None:
    whole = file.read_bytes()
    file.unlink()
    gone = refused(file, Fatal, "missing while it was read")
    file.symlink_to(file)
    loop = refused(file, Fatal, "Too many levels of symbolic links")
    file.unlink()
    for error in (gone, loop):
        with typed(error) as hint:
            hint.says("restore it")
            file.write_bytes(whole)
            assert read(file) == 3


def test_a_file_that_this_user_may_not_read_is_read_once_it_may(file: Path) -> None:
    file.chmod(0)
    error = refused(file, Fatal, "not readable: Permission denied")
    with typed(error) as hint:
        hint.says("give this user permission to read it")
        file.chmod(0o444)
        assert read(file) == 3


def test_half_a_file_is_passed_over_under_another_name_until_it_is_whole(tmp_path: Path) -> None:
    """A file that is still written, and one whose writer died."""
    parquet(tmp_path / "snapshot" / "a.parquet")
    half = tmp_path / "snapshot" / "b.parquet"
    half.write_bytes(b"PAR1")
    with pytest.raises(BadData, match=r"b\.parquet: not a complete parquet file") as caught:
        pinned(half.parent)
    with typed(caught.value) as hint:
        hint.says("write it again, under a name that begins with '_' or ends with .tmp")
        half.rename(hidden := half.with_name("_b.parquet"))
        assert pinned(half.parent) == ["a.parquet"]
        hint.says("rename it when complete")
        parquet(hidden).rename(half)
        assert pinned(half.parent) == ["a.parquet", "b.parquet"]


IN_SPARK = {
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Error while reading file file:/d/a%20b.parquet.": (Fatal, "restore it"),
    "[PATH_NOT_FOUND] Path does not exist: s3a://b/t.": (Fatal, "restore it"),
    "[FAILED_READ_FILE.NO_HINT] Error while reading file file:/d/a.parquet.\nCaused by: java.io.IOException: "
    "Input/output error": (Transient, "it is retried automatically"),
    "[FAILED_READ_FILE.NO_HINT] Error while reading file file:/d/a.parquet.\nCaused by: java.lang.RuntimeException"
    ": file:/d/a.parquet is not a Parquet file": (BadData, "write it again"),
    "ModuleNotFoundError: No module named 'backfill_cli.spark'": (Fatal, SAME_PACKAGE),
}
"""What Spark says, as seen."""


@pytest.mark.parametrize("said", IN_SPARK, ids=range(len(IN_SPARK)))
def test_what_spark_says_of_a_file_is_the_same_error(said: str) -> None:
    kind, hint = IN_SPARK[said]
    error = from_spark(RuntimeError(said))
    assert type(error) is kind
    assert str(error.hint).startswith(str(hint))


def test_what_is_not_about_a_file_is_left_to_others() -> None:
    assert from_spark(RuntimeError("[DIVIDE_BY_ZERO] Division by zero.")) is None
