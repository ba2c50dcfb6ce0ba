"""Columns in the names of folders, as Hive and Spark write them: read exactly, or refused by name."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import event, land, opened
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import Named
from backfill_cli.errors import BackfillError, BadData, UsageError
from backfill_cli.formats import hive
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.upstreams.files import connector
from backfill_cli.upstreams.files.reading import folder_columns

NULL = "__HIVE_DEFAULT_PARTITION__"
ESCAPED = "".join(map(chr, range(1, 32))) + "\"#%'*/:=?\\\x7f{[]^"
"""The characters that Hive and Spark escape."""


def escaped(text: str | None) -> str:
    """A value as Spark writes it into a folder's name."""
    return NULL if not text else "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in text)


def part(root: Path, folders: str, **columns: list[Any]) -> Path:
    path = root / "snapshot" / folders / "part-0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"id": [1]}), path)
    return path


def rows(root: Path, **snapshot: Any) -> list[dict[str, Any]]:
    upstream = opened(root, **snapshot)
    pin = upstream.pin()
    reads = [SnapshotRead("t", split.id, 0, split.rows) for split in pin.splits]
    tasks = upstream.batches("t", reads, 4)
    assert tasks is not None
    return [row for task in tasks.parts for p in task for batch in tasks.make(p.what) for row in batch.to_pylist()]


def refused(act: Callable[[], object]) -> BackfillError:
    with pytest.raises(BackfillError) as caught:
        act()
    return caught.value


def set_by(hint: Any) -> dict[str, Any]:
    return {path.removeprefix("upstream.snapshot."): value for path, value in hint.settings().items()}


@given(
    st.lists(
        st.none() | st.text(st.characters(max_codepoint=0x7E) | st.sampled_from("é漢😀"), max_size=9), max_size=3
    )
)
def test_what_spark_writes_into_a_name_is_read_back(values: list[str | None]) -> None:
    values = [None if value is not None and "\0" in value else value for value in values]
    name = "".join(f"c{i}={escaped(value)}/" for i, value in enumerate(values)) + "part-0.parquet"
    assert hive.columns_of(name) == [(f"c{i}", value or None) for i, value in enumerate(values)]


def test_columns_have_their_types_and_null(tmp_path: Path) -> None:
    for day in ("2024-01-02", NULL):
        for place in (NULL, "a%3Ab%2Fc", "é"):
            part(tmp_path, f"dt={day}/region={place}")
    found = rows(tmp_path, folders="dt DATE, region STRING")
    assert {(row["dt"], row["region"]) for row in found} == {
        (day, place) for day in (dt.date(2024, 1, 2), None) for place in (None, "a:b/c", "é")
    }
    assert len(found) == 6


def test_a_folder_of_a_column_with_an_underscore_is_not_ignored(tmp_path: Path) -> None:
    part(tmp_path, "_d=1")
    part(tmp_path, "_d=x.tmp")
    part(tmp_path, "_temporary/_d=7")
    assert [row["_d"] for row in rows(tmp_path, folders="_d STRING")] == ["1", "x.tmp"]
    with pytest.raises(BadData, match="a folder name holds a column's value"):
        rows(tmp_path)
    land(tmp_path / "changes" / "_d=1", "1.json", event(1))
    upstream = opened(tmp_path, folders="_d STRING")
    with pytest.raises(BadData, match="a folder name holds a column's value"):
        upstream.pin()


def test_a_column_that_files_have_too_must_be_equal(tmp_path: Path) -> None:
    part(tmp_path, "n=5", id=[1, 2], n=[5, 5])
    part(tmp_path, f"n={NULL}", id=[3], n=pa.array([None], pa.int64()))
    assert [row["n"] for row in rows(tmp_path, folders="n BIGINT")] == [5, 5, None]
    for other in ([5, 6], [5, None]):
        part(tmp_path, "n=5", id=[1, 2], n=other)
        with pytest.raises(BadData, match=r"row 2 \(of id 2\): column 'n' is not 5, as the file's folder says"):
            rows(tmp_path, folders="n BIGINT")
    part(tmp_path, "n=5", id=[1], n=[5])
    part(tmp_path, f"n={NULL}", id=[3], n=[5])
    with pytest.raises(BadData, match="column 'n' is not NULL"):
        rows(tmp_path, folders="n BIGINT")


def test_folders_without_the_option_are_named_with_the_option(tmp_path: Path) -> None:
    part(tmp_path, "dt=2024-01-02/n=5/z=05")
    with typed(refused(lambda: rows(tmp_path))) as hint:
        options = set_by(hint)
        assert options == {"folders": "dt DATE, n BIGINT, z STRING"}
        assert rows(tmp_path, **options) == [{"id": 1, "dt": dt.date(2024, 1, 2), "n": 5, "z": "05"}]


def test_a_column_of_another_type_is_declared_as_the_files_have_it(tmp_path: Path) -> None:
    part(tmp_path, "n=5", id=[1], n=["5"])
    with typed(refused(lambda: rows(tmp_path, folders="n BIGINT"))) as hint:
        assert rows(tmp_path, **set_by(hint)) == [{"id": 1, "n": "5"}]


def test_a_value_that_its_type_does_not_hold_is_named(tmp_path: Path) -> None:
    part(tmp_path, "n=5")
    part(tmp_path, "n=5x")
    error = refused(lambda: rows(tmp_path, folders="n BIGINT"))
    assert "n=5x/part-0.parquet: column 'n'" in error.message
    with typed(error) as hint:
        assert [row["n"] for row in rows(tmp_path, **set_by(hint))] == ["5", "5x"]


def test_a_file_elsewhere_is_named(tmp_path: Path) -> None:
    part(tmp_path, "a=1/n=5")
    part(tmp_path, "a=1/n=5/n=6")
    error = refused(lambda: rows(tmp_path, folders="n BIGINT, a BIGINT"))
    assert "its folders have a, n, n, not n, a" in error.message
    (tmp_path / "snapshot" / "a=1" / "n=5" / "n=6" / "part-0.parquet").unlink()
    with typed(refused(lambda: rows(tmp_path, folders="n BIGINT"))) as hint:
        assert rows(tmp_path, **set_by(hint)) == [{"id": 1, "a": 1, "n": 5}]


def test_an_escape_that_writers_read_differently_is_named(tmp_path: Path) -> None:
    part(tmp_path, "v=caf%C3%A9")
    with typed(refused(lambda: rows(tmp_path, folders="v STRING"))) as hint:
        hint.says("write the character itself")
        (tmp_path / "snapshot" / "v=caf%C3%A9").rename(tmp_path / "snapshot" / "v=café")
        assert rows(tmp_path, folders="v STRING") == [{"id": 1, "v": "café"}]


def test_a_folder_holds_no_bytes_and_no_lists(tmp_path: Path) -> None:
    part(tmp_path, "dt=2024-01-02")
    for kind in ("BINARY", "ARRAY<INT>"):
        with typed(refused(lambda kind=kind: rows(tmp_path, folders=f"dt {kind}"))) as hint:  # type: ignore[misc]
            assert len(rows(tmp_path, **set_by(hint))) == 1


def test_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    part(tmp_path, "DT=1", id=[1], dt=[1])
    with pytest.raises(BackfillError, match="case"):
        rows(tmp_path, folders="DT BIGINT")


def test_plan_says_which_columns_are_those_of_folders(tmp_path: Path) -> None:
    part(tmp_path, "dt=2024-01-02")
    upstream = opened(tmp_path, folders="dt DATE")
    upstream.pin()
    (said,) = upstream.extras.warnings()
    assert "dt is read from the names of folders" in said
    assert opened(tmp_path).extras.warnings() == ()
    with pytest.raises(UsageError, match="names of folders"):
        upstream.extras.duckdb_sql("t", {"id": "BIGINT"})


def test_init_offers_the_columns_of_folders(tmp_path: Path) -> None:
    part(tmp_path, "dt=2024-01-02/n=5", id=[1], n=pa.array([5], pa.int32()))
    path = str(tmp_path / "snapshot")
    looked = connector.look(Named(path, path))
    assert looked.options["snapshot.folders"].value == "dt DATE, n INT"
    assert rows(tmp_path, folders=looked.options["snapshot.folders"].value) == [
        {"id": 1, "n": 5, "dt": dt.date(2024, 1, 2)}
    ]


def test_a_job_without_them_has_the_identity_that_it_had() -> None:
    base = {"snapshot": {"path": "p", "format": "parquet"}}
    told = connector.fingerprint(connector.options.model_validate(base))
    assert "folders" not in told["snapshot"]
    base["snapshot"]["folders"] = "n INT"
    assert connector.fingerprint(connector.options.model_validate(base))["snapshot"]["folders"] == "n INT"


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("c INT", "-7"),
        ("c DECIMAL(5,2)", "1.50"),
        ("c TIMESTAMP_NTZ", "2024-01-02 03%3A04%3A05.5"),
        ("c DOUBLE", "0.5"),
    ],
)
def test_values_of_simple_types_are_read(ddl: str, text: str) -> None:
    types = of_ddl(ddl)
    made, faults = folder_columns.added({}, 2, f"c={text}/a.parquet", types, {"c": False})
    plain = {"-7": -7, "1.50": Decimal("1.50"), "0.5": 0.5}
    value = plain.get(text, dt.datetime(2024, 1, 2, 3, 4, 5, 500_000))
    assert (made["c"].to_pylist(), faults) == ([value] * 2, {})
