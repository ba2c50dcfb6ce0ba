"""What counts as a file, and when a folder is listed again."""

import http.server
import os
import threading
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from hint_typed import typed

from backfill_cli.config.draft import Draft
from backfill_cli.config.template import template
from backfill_cli.errors import BadData, Fatal, UsageError
from backfill_cli.formats import listing
from backfill_cli.formats.listing import Listing, Place, place


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


def names(template: str, table: str = "t") -> list[str]:
    return list(Listing(place(template, table)).files())


def test_hidden_and_temporary_names_are_not_there_yet(tmp_path: Path) -> None:
    touch(tmp_path, "b.json", "a.json", "_a.json", ".c", "d.tmp", "_SUCCESS", "_temporary/x.json", "sub/e.json")
    assert names(str(tmp_path)) == ["a.json", "b.json", "sub/e.json"]
    assert names(f"file://{tmp_path}") == ["a.json", "b.json", "sub/e.json"]


def test_a_glob_matches_part_by_part(tmp_path: Path) -> None:
    touch(tmp_path, "2026/01/a.json", "2026/02/b.json", "2026/02/c.csv", "2027/02/d.json", "e.json")
    assert names(str(tmp_path / "2026" / "*" / "*.json")) == ["01/a.json", "02/b.json"]
    assert names(str(tmp_path / "*.json")) == ["e.json"]


def test_a_file_by_its_own_name_is_a_place_of_one_file(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].json", "a1.json")
    assert names(str(tmp_path / "a[1].json")) == ["a[1].json"]


def test_a_folder_that_is_named_like_a_glob_is_a_folder(tmp_path: Path) -> None:
    touch(tmp_path, "x[1]/a.json", "x1/b.json")
    assert names(str(tmp_path / "x[1]")) == ["a.json"]


def test_the_tables_name_goes_into_the_path(tmp_path: Path) -> None:
    touch(tmp_path, "orders/a.json", "lines/b.json")
    assert names(str(tmp_path / "{table}"), "lines") == ["b.json"]


def test_a_missing_folder_holds_no_files(tmp_path: Path) -> None:
    assert names(str(tmp_path / "nothing")) == []


def test_a_folder_whose_name_holds_a_columns_value_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "day=1/a.json")
    with pytest.raises(BadData, match="'day=1', a Hive-style partition") as refused:
        names(str(tmp_path))
    with typed(refused.value) as hint:
        hint.says("or set the path to one such folder")
        assert names(str(tmp_path / "day=1")) == ["a.json"]


def test_the_layout_of_kafka_connect_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "orders/partition=0/orders+0+0000000000.json")
    with pytest.raises(BadData, match="Kafka Connect") as caught:
        names(str(tmp_path))
    with typed(caught.value) as hint:
        hint.says("or set the path to the folder of one partition")
        assert names(str(tmp_path / "orders" / "partition=0")) == ["orders+0+0000000000.json"]


def test_a_name_that_spark_cannot_read_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "2026-01-01T00:00.json")
    with pytest.raises(BadData, match="colon") as refused:
        names(str(tmp_path))
    with typed(refused.value) as hint:
        hint.says("rename the file")
        (tmp_path / "2026-01-01T00:00.json").rename(tmp_path / "2026.json")
        assert names(str(tmp_path)) == ["2026.json"]


TABLES = {
    "a Delta": ("_delta_log/0.json", "a.parquet"),
    "a Hudi": (".hoodie/hoodie.properties", "2026/a.parquet"),
    "an Iceberg": ("metadata/v1.metadata.json", "data/a.parquet"),
}


def elsewhere(path: Path) -> Place:
    """The same folder as on a file system that is no local one."""
    return Place(pafs.LocalFileSystem(), str(path), (), f"s3:/{path}", f"s3:/{path}", False)


@pytest.mark.parametrize("kind", TABLES)
def test_the_files_of_a_table_are_not_taken_for_its_rows(tmp_path: Path, kind: str) -> None:
    touch(tmp_path, *TABLES[kind])
    wheres = [place(str(tmp_path), "t"), place(str(tmp_path / "*.parquet"), "t"), elsewhere(tmp_path)]
    for where in wheres:
        with pytest.raises(UsageError, match=f"holds {kind} table") as caught:
            Listing(where).files()
        name = kind.split()[-1]
        told = (
            f"init --upstream {name.lower()}"
            if name in ("Delta", "Iceberg")
            else "export the rows as plain Parquet"
        )
        assert told in str(caught.value.hint)
        if name != "Hudi":
            with typed(caught.value) as hint:
                (words,) = hint.commands()
                told_type = hint.settings()["type"]
                assert words == ["init", "--upstream", told_type]
                assert f'type = "{told_type}"' in template(Draft(str(told_type), "duckdb", "orders"))


@pytest.mark.parametrize("kind", TABLES)
def test_a_part_of_a_table_is_not_taken_for_its_rows(tmp_path: Path, kind: str) -> None:
    touch(tmp_path, *TABLES[kind], "data/b.parquet")
    for where in (place(str(tmp_path / "data"), "t"), elsewhere(tmp_path / "data")):
        with pytest.raises(UsageError, match=f"holds {kind} table"):
            listing.refuse_part_of_table(where)


def test_folders_called_data_and_metadata_are_plain_ones(tmp_path: Path) -> None:
    touch(tmp_path, "data/a.json", "metadata/notes.json")
    where = place(str(tmp_path / "data"), "t")
    listing.refuse_part_of_table(where)
    assert list(Listing(where).files()) == ["a.json"]


def test_a_folder_that_did_not_change_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "a.json", "sub/b.json")
    for folder in (tmp_path, tmp_path / "sub"):
        os.utime(folder, (1, 1))
    known = Listing(place(str(tmp_path), "t"))
    files = known.files()

    def never(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(os, "scandir", never)
    assert known.files() is files


def test_a_file_in_a_subfolder_is_seen_and_so_is_a_change_within_the_clocks_grain(tmp_path: Path) -> None:
    touch(tmp_path, "sub/a.json")
    known = Listing(place(str(tmp_path), "t"))
    assert list(known.files()) == ["sub/a.json"]
    touch(tmp_path, "sub/b.json")
    assert list(known.files()) == ["sub/a.json", "sub/b.json"]


def test_another_file_system_is_listed_the_same_way(tmp_path: Path) -> None:
    touch(tmp_path, "a.json", "_b.json", "_dir/c.json", "sub/d.json", "e.tmp")
    system = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    remote = Place(system, "", (), "x://bucket", "x://bucket", local=False)
    assert list(Listing(remote).files()) == ["a.json", "sub/d.json"]


def test_a_scheme_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nosuch://bucket/folder: no file system") as refused:
        place("nosuch://bucket/folder", "t")
    with typed(refused.value) as hint:
        hint.says("set a local path, or a URI such as s3://")
        touch(tmp_path, "a.json")
        assert names(str(tmp_path)) == ["a.json"]


def test_a_uri_is_split_before_its_first_pattern() -> None:
    where = place("mock:///data/{table}/*/x?.json", "t")
    assert (where.folder, where.pattern, where.uri) == ("data/t", ("*", "x?.json"), "mock:///data/t")


def test_what_spark_takes_for_a_pattern_is_escaped(tmp_path: Path) -> None:
    where = place(str(tmp_path), "t")
    assert where.spark_path(listing.File("x[1]*.json", "", 0, 0)) == f"file://{tmp_path}/x\\[1\\]\\*.json"


class _Refused(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


def test_a_store_that_refuses_access_is_not_taken_for_a_damaged_file(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "us-east-1"}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Refused) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, value in {**told, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(Fatal, match="s3a://bucket/orders: access is denied at http://127") as refused:
            Listing(place("s3a://bucket/{table}", "orders")).files()
        server.shutdown()
    assert not isinstance(refused.value, BadData)
    assert "AWS_ACCESS_KEY_ID" in str(refused.value.hint)
    assert "hunter2" not in str(refused.value)
