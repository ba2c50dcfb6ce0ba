"""Which tables `drop` of a Delta sink removes: those that the job filled, whatever now has their names."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import StateConflict
from backfill_cli.lake.delta.edge import Where
from backfill_cli.sinks.delta import DeltaOptions, tables
from backfill_cli.sinks.delta.sink import DeltaSink

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
A, B = (SinkTable(name, name, ("id",), SCHEMA) for name in ("a", "b"))


@dataclass
class Catalog:
    """The names `spark_catalog.s.<table>`, and the folder of each."""

    at: dict[str, Path]

    def sql(self, statement: str) -> None:
        assert statement.startswith("DROP TABLE IF EXISTS ")
        if (folder := self.at.pop(statement.split("`")[-2], None)) is not None:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    made = Catalog({name: tmp_path / "house" / name for name in "ab"})

    def located(_: object, name: str) -> Where | None:
        at = made.at.get(name.split(".")[-1])
        return None if at is None else Where.of(str(at), "")

    monkeypatch.setattr(tables, "located", located)
    monkeypatch.setattr(tables, "schema_folder", lambda *_: str(tmp_path / "house"))
    for folder in made.at.values():
        theirs(folder, rows=0)
    sink(made).prepare("j", (A, B), False)
    sink(made).fence("j", 1)
    return made


def sink(catalog: Catalog) -> DeltaSink:
    opened = DeltaSink(DeltaOptions(table="spark_catalog.s.{table}"))
    opened.use(lambda: catalog)  # type: ignore[arg-type,return-value]
    return opened


def theirs(folder: Path, rows: int) -> None:
    write_deltalake(str(folder), pa.table({"id": pa.array(range(rows), pa.int64())}))


def recreated(catalog: Catalog) -> Path:
    shutil.rmtree(catalog.at["b"])
    theirs(catalog.at["b"], rows=1)
    return catalog.at["b"]


def moved(catalog: Catalog, rows: int = 1) -> Path:
    catalog.at["b"] = catalog.at["b"].parent.parent / "other" / "place"
    theirs(catalog.at["b"], rows)
    return catalog.at["b"]


def moved_to_an_empty_one(catalog: Catalog) -> Path:
    return moved(catalog, rows=0)


def test_tables_that_the_job_filled_are_dropped(catalog: Catalog) -> None:
    folders = list(catalog.at.values())
    write_deltalake(str(folders[0]), pa.table({"id": [1]}), mode="append")
    sink(catalog).drop((A, B))
    assert (catalog.at, [folder.exists() for folder in folders]) == ({}, [False, False])
    assert set(sink(catalog).committed("j")) == {"a", "b"}
    sink(catalog).drop((A, B))


@pytest.mark.parametrize("given", [moved, moved_to_an_empty_one, recreated])
def test_a_table_of_others_under_the_jobs_name_is_refused_before_any_goes(
    catalog: Catalog, given: Callable[[Catalog], Path]
) -> None:
    folder = given(catalog)
    with pytest.raises(StateConflict, match="the place of table 'b', now has a table that the job did not fill"):
        sink(catalog).drop((A, B))
    assert DeltaTable.is_deltatable(str(folder))
    assert DeltaTable.is_deltatable(str(catalog.at["a"]))
    assert set(catalog.at) == {"a", "b"}


def test_a_table_that_was_claimed_and_never_filled_is_dropped(tmp_path: Path) -> None:
    opened = DeltaSink(DeltaOptions(table=f"{tmp_path}/{{table}}"))
    opened.prepare("j", (A,), False)
    opened.drop((A,))
    assert not (tmp_path / "a").exists()


def test_a_folder_that_no_job_has_claimed_stays(tmp_path: Path) -> None:
    opened = DeltaSink(DeltaOptions(table=f"{tmp_path}/{{table}}"))
    opened.prepare("j", (A,), False)
    theirs(tmp_path / "b", rows=1)
    with pytest.raises(StateConflict, match="now has a table that the job did not fill"):
        opened.drop((A, B))
    assert (tmp_path / "a").exists()
    assert (tmp_path / "b").exists()
