"""A sink whose tables live in Spark gets the run's session: a job into it, its tables committed one by one."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from backfill_cli import registry
from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.contracts import EpochCommit, SavedJob, Sink, SinkCapabilities, SinkConnector, SinkTable
from backfill_cli.engine.loop.run import start
from backfill_cli.model.checkpoint import Marker, Owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = """
[job]
name = "j"
staging = "{folder}/staging"
[upstream]
type = "files"
snapshot = {{ path = "{folder}/{{table}}", format = "parquet" }}
[[tables]]
name = "a"
key = ["id"]
[[tables]]
name = "b"
key = ["id"]
[sink]
type = "spark-folder"
path = "{folder}/sink"
"""


class Options(BaseModel):
    path: str


@dataclass
class SparkFolder(Sink):
    """Each table is a folder that Spark appends to; its marker is a file beside it, written after the rows."""

    root: Path
    dies_after: list[str]
    capabilities = SinkCapabilities(transactional=False, partial=False)

    def use(self, session: "Callable[[], SparkSession]") -> None:
        self._session = session

    def prepare(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> None:
        self.root.mkdir(exist_ok=True)

    def owner(self, job: str) -> Owner | None:
        return None

    def own(self, job: str, owner: Owner, instead_of: Owner | None) -> None: ...

    def fence(self, job: str, token: int) -> None:
        for name, marker in self.committed(job).items():
            self._mark(name, replace(marker, token=token))

    def committed(self, job: str) -> Mapping[str, Marker]:
        found = self.root.glob("*.marker")
        return {one.stem: Marker(**json.loads(one.read_text())) for one in found}

    def commit(self, commit: EpochCommit) -> None:
        for name, table in commit.staged.tables.items():
            if commit.only is not None and name not in commit.only:
                continue
            files = [str(Path(commit.folder, file.path)) for file in table.inserts]
            self._session().read.parquet(*files).write.mode("append").parquet(str(self.root / name))
            self._mark(name, Marker(commit.epoch, commit.token, commit.attempt))
            if name in self.dies_after:
                self.dies_after.remove(name)
                raise KeyboardInterrupt

    def saved(self, job: str) -> SavedJob | None:
        return None

    def drop(self, tables: Sequence[SinkTable]) -> None: ...
    def forget(self, job: str) -> None: ...

    def _mark(self, name: str, marker: Marker) -> None:
        (self.root / f"{name}.marker").write_text(json.dumps(asdict(marker)))


@pytest.fixture
def run(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name in "ab":
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": pa.array(range(500), pa.int64())}), tmp_path / name / "0.parquet")
    dies_after: list[str] = []
    connector = SinkConnector(Options, lambda told: SparkFolder(Path(told.path), dies_after), lambda told: {})
    monkeypatch.setattr(registry, "sink", lambda kind: connector)
    (tmp_path / "job.toml").write_text(CONFIG.format(folder=tmp_path))

    def once(dying: Sequence[str] = ()) -> None:
        dies_after.extend(dying)
        catalog = Catalog(tmp_path / "catalog.duckdb")
        start(load(tmp_path / "job.toml"), catalog, "caught-up", False, None)

    return once


def held(folder: Path, table: str) -> list[int]:
    found: list[int] = pq.read_table(folder / "sink" / table)["id"].to_pylist()
    return sorted(found)


def test_a_job_commits_through_the_session_of_its_run(run: Callable[..., None], tmp_path: Path) -> None:
    run()
    assert held(tmp_path, "a") == held(tmp_path, "b") == list(range(500))


def test_a_death_between_two_tables_is_made_good_table_by_table(run: Callable[..., None], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(dying=["a"])
    assert held(tmp_path, "a") == list(range(500))
    assert not (tmp_path / "sink" / "b").exists()
    run()
    assert held(tmp_path, "a") == held(tmp_path, "b") == list(range(500))
