"""Failures of Spark over a lake's tables: which table and which snapshot they are about."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import HistoryGone
from backfill_cli.lake.delta.edge import Where, named_in
from backfill_cli.lake.iceberg.places import Place as IcebergPlace
from backfill_cli.model.position import Position
from backfill_cli.upstreams.delta.upstream import cleaned_up, vacuumed
from backfill_cli.upstreams.iceberg import IcebergOptions, log
from backfill_cli.upstreams.iceberg.table import Table, cursor_of
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

NAMES = ("orders", "orders2", "old orders", "orders-2", "orders.bak", "50%off", "a b", "ü")


def delta(lake: Path) -> dict[str, Where]:
    return {name: Where.of(str(lake / name), name) for name in NAMES}


def said(path: Path) -> list[str]:
    """How Spark, Hadoop and our workers name a file."""
    return [
        f"[FAILED_READ_FILE.FILE_NOT_EXIST] Error while reading file {path.as_uri()}. File does not exist",
        f"java.io.FileNotFoundException: File file:{quote(str(path))} does not exist",
        f"java.io.FileNotFoundException: File file:{path} does not exist",
        f"{path}: missing while it was read",
        f"FileNotFoundException: '{path.parent}'",
        f"FileNotFoundException: no such folder {path.parent}.",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_vacuum_removed_names_its_own_table(tmp_path: Path, name: str) -> None:
    tables = delta(tmp_path)
    for text in said(tmp_path / name / "part-0.parquet"):
        for order in (list(tables.values()), list(tables.values())[::-1]):
            error = vacuumed(Exception(text), order)
            assert isinstance(error, HistoryGone), text
            assert error.message == f"{tmp_path / name}: VACUUM removed a file that was still to be read"
            assert f"ALTER TABLE delta.`{tmp_path / name}` SET" in str(error.hint)


def test_a_file_of_no_table_names_none(tmp_path: Path) -> None:
    tables = list(delta(tmp_path).values())
    for path in (tmp_path / "orders3" / "part-0.parquet", Path("/other") / tmp_path.relative_to("/") / "orders/x"):
        for text in said(path):
            assert vacuumed(Exception(text), tables) is None


def test_a_table_of_an_object_store_is_named_by_its_uri() -> None:
    uris = [f"s3://bucket/lake/{name}" for name in ("orders", "orders2")]
    tables = [Where(LocalFileSystem(), uri.removeprefix("s3://"), (), uri, uri, False) for uri in uris]
    assert named_in("File s3a://bucket/lake/orders2/part-0.parquet does not exist", tables) is tables[1]
    assert named_in("File s3a://bucket/lake/orders/part-0.parquet does not exist", tables) is tables[0]


def test_a_log_file_that_cleanup_removed_names_its_own_table(tmp_path: Path) -> None:
    error = cleaned_up(
        Exception(
            f"[DELTA_LOG_FILE_NOT_FOUND] {(tmp_path / 'orders2').as_uri()}/_delta_log/00000000000000000003.json"
        ),
        list(delta(tmp_path).values()),
    )
    assert error is not None
    assert error.message == f"{tmp_path / 'orders2'}: log cleanup removed a version that is not applied yet"


# Iceberg


class Spark:
    """A session in which each read of a changelog fails."""


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergUpstream:
    """Tables a and b, of which snapshots up to 9 of their ten each were asked for."""
    options = IcebergOptions(table=f"{tmp_path}/{{table}}")
    made = IcebergUpstream(options, [TableSpec(name, ("id",)) for name in ("a", "b")])
    empty = SimpleNamespace(main=None, ancestors=lambda _: [], snapshot=lambda _: None)
    monkeypatch.setattr(Table, "now", lambda self: empty)
    monkeypatch.setattr(log, "rows", lambda one: 1)

    def snapshot(table: str, number: int) -> Any:
        return SimpleNamespace(snapshot_id=ID[table] + number, sequence_number=number, timestamp_ms=number)

    def fails(*_: object) -> Any:
        raise RuntimeError("not read")

    for first in (4, 7):  # one epoch is staged while the one before it commits
        for name, one in made.tables.items():
            between = [snapshot(name, number) for number in range(first + 1, first + 3)]
            monkeypatch.setattr(one, "_require_columns", lambda held: None)
            monkeypatch.setattr(one, "_changelog", fails)
            monkeypatch.setattr(one, "_between", lambda *_, held=between: held)
            after, up_to = (Position.of({name: cursor_of(snapshot(name, first + n))}) for n in (0, 2))
            with pytest.raises(RuntimeError, match="not read"):
                made.changes(Spark(), name, after, up_to, '{"type": "struct", "fields": []}')  # type: ignore[arg-type]
    return made


ID = {"a": 5_000_000_000_000_000_000, "b": 6_000_000_000_000_000_000}


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("first", [4, 7])
def test_an_expired_snapshot_names_its_own_table(
    followed: IcebergUpstream, tmp_path: Path, name: str, first: int
) -> None:
    gone, end = ID[name] + first, ID[name] + first + 2
    for text in (
        f"job 17953000000001: Starting snapshot (exclusive) {gone} is not a parent ancestor of end snapshot {end}",
        f"Cannot find snapshot with ID {gone}",
        f"Cannot find the end snapshot: {gone}",
    ):
        error = followed.failure(Exception(text))
        assert isinstance(error, HistoryGone)
        assert error.message == f"{tmp_path / name}: snapshot {gone} has expired"
        assert f"ALTER TABLE `lake`.`{name}` SET" in str(error.hint)


def test_a_snapshot_that_is_read_whole_names_its_own_table(followed: IcebergUpstream, tmp_path: Path) -> None:
    class Expired:
        """A session whose tables no longer have the snapshot."""

        def sql(self, text: str) -> Any:
            raise RuntimeError(f"Cannot find snapshot with ID {text.split()[-1]}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(IcebergPlace, "register", lambda *_: None)
        with pytest.raises(RuntimeError) as failed:
            followed.tables["b"].rows_at(Expired(), f"1:{ID['b'] + 30}")  # type: ignore[arg-type]
    error = followed.failure(failed.value)
    assert error is not None
    assert error.message == f"{tmp_path / 'b'}: snapshot {ID['b'] + 30} has expired"


def test_a_snapshot_that_nobody_asked_for_is_no_table_s(followed: IcebergUpstream) -> None:
    assert followed.failure(Exception("Cannot find snapshot with ID 7000000000000000000")) is None
