"""What the Delta library says when it opens a table at a version, and what is made of it."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_cli.errors import Fatal, HistoryGone, UsageError
from backfill_cli.lake.delta.edge import Where


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 5, with a checkpoint at 4."""
    for number in range(5):
        write_deltalake(tmp_path / "t", pa.table({"id": [number]}), mode="append")
    DeltaTable(tmp_path / "t").create_checkpoint()
    write_deltalake(tmp_path / "t", pa.table({"id": [5]}), mode="append")
    return tmp_path / "t"


def forget(table: Path, *versions: int) -> None:
    for version in versions:
        (table / "_delta_log" / f"{version:020d}.json").unlink()


@pytest.mark.parametrize(
    ("gone", "version"), [((0, 1, 2, 3), 1), ((0, 1, 2), 3), ((0,), 2), ((1,), 3), ((1,), 1), ((0, 1, 2, 3), 0)]
)
def test_a_version_that_log_cleanup_removed_is_lost(table: Path, gone: tuple[int, ...], version: int) -> None:
    where = Where.of(str(table), "t")
    assert where.open(version).to_pyarrow_table().num_rows == version + 1
    forget(table, *gone)
    with pytest.raises(HistoryGone, match=rf"its log no longer has version {version}\b") as error:
        where.open(version)
    assert error.value.exit_code == 7
    assert where.open(4).version() == 4
    assert where.open().version() == 5


def test_a_version_that_does_not_exist_yet_is_told(table: Path) -> None:
    with pytest.raises(UsageError, match="has no version 9: its newest is 5"):
        Where.of(str(table), "t").open(9)


@pytest.mark.parametrize("version", [None, 1])
def test_a_damaged_table_is_not_a_lost_version(table: Path, version: int | None) -> None:
    next((table / "_delta_log").glob("*.checkpoint.parquet")).unlink()
    (table / "_delta_log" / "_last_checkpoint").unlink()
    forget(table, 0)
    with pytest.raises(Fatal, match=r"version 0 is missing from its log, which has version 5") as error:
        Where.of(str(table), "t").open(version)
    assert error.value.exit_code == 1


@pytest.mark.parametrize("version", [None, 1])
def test_a_folder_without_a_table_is_not_a_lost_version(tmp_path: Path, version: int | None) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match="no Delta table"):
            Where.of(str(folder), "t").open(version)


def test_the_tables_beside_a_folder_without_one_are_told_nearest_first(tmp_path: Path) -> None:
    for name in ("customers/_delta_log", "orders/_delta_log", "notes", "order"):
        (tmp_path / name).mkdir(parents=True)
    for name, known in (("order", "; did you mean orders?"), ("nowhere/order", "")):
        where = Where.of(str(tmp_path / name), "t")
        with pytest.raises(UsageError) as refused:
            where.open()
        assert refused.value.message == f"{where.shown}: no Delta table{known}"


class _NoBucket(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(404)
        self.end_headers()

    def do_GET(self) -> None:
        said = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"
        self.send_response(404)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def no_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An S3 without any bucket."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _NoBucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ALLOW_HTTP": "true"}
        told = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_REGION": "us-east-1", **address}
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        yield
        server.shutdown()


@pytest.mark.usefixtures("no_bucket")
@pytest.mark.parametrize("version", [None, 1])
def test_a_bucket_that_does_not_exist_is_not_a_lost_version(version: int | None) -> None:
    with pytest.raises(Fatal, match=r"s3://bucket/t: this bucket does not exist at http://127") as error:
        Where.of("s3://bucket/t", "t").open(version)
    assert error.value.exit_code == 1
    assert "start over" not in str(error.value.hint)
