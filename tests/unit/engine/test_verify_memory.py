"""An unfinished verify is continued: equal tables are not read again, unless they may differ now."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from verify_case import UNTOLD

from backfill_cli.catalog import Catalog
from backfill_cli.contracts import JobDefinition, SavedJob, SinkTable
from backfill_cli.engine.verify import job as verify_job
from backfill_cli.engine.verify.job import Verification
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.model.verify import EVERYTHING, Asked, TableVerdict, VerifyReport
from backfill_cli.sinks.duckdb.file import Limits
from backfill_cli.sinks.duckdb.verify import copied
from backfill_cli.view.verify import verify_text

TABLES = tuple(SinkTable(name, f"main.{name}", ("id",), "{}") for name in ("a", "b", "c"))
JOB = JobDefinition("shop", "{}", "{}", Pin(START, None, None, ()), "forever", "snapshot", TABLES)
AT = Checkpoint(5, 4, 1, "x", "{}", Phase.UPSTREAM, Position.of({"log": 5}))


class Killed(BaseException):
    """Not caught by anything, like kill -9."""


@dataclass
class World:
    """A job of three tables in a catalog; `written` is its sink's mark. read: the tables that were compared."""

    catalog: Catalog
    folder: Path
    written: str | None = "1"
    job: JobDefinition = JOB
    at: Checkpoint = AT
    differs: str = ""
    dies_at: str = ""
    read: list[str] = field(default_factory=list)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def blocks(self) -> str:
        return ""

    def mark(self) -> str | None:
        return self.written

    def saved(self) -> SavedJob:
        return SavedJob("{}", self.at)

    def compare(self, _: Any, __: Any, ___: Any, table: SinkTable, *____: Any) -> Any:
        if table.name == self.dies_at:
            raise Killed
        self.read.append(table.name)
        compared = type("Compared", (), {})()
        compared.verdict = TableVerdict(table.name, table.target, table.name != self.differs, 7, 7)
        return compared

    def verify(self, asked: Asked = EVERYTHING, independent: bool = False) -> VerifyReport:
        """Runs verify as the command does, until it ends or is killed; `read` is what this call read."""
        self.read.clear()
        config: Any = SimpleNamespace(job=SimpleNamespace(staging=str(self.folder)))
        resources: Any = SimpleNamespace(spark=None)
        of: Any = (
            self.job,
            config,
            resources,
            lambda *_: self,
            False,
            asked,
            UNTOLD,
            independent,
            self.catalog,
            self.compare,
        )
        nothing: Any = lambda *_: None  # noqa: E731
        return verify_job.noted(Verification(*of).against(nothing), self.catalog)


@pytest.fixture
def world(tmp_path: Path) -> World:
    catalog = Catalog(tmp_path / "catalog.duckdb")
    catalog.create_job(JOB, Control(), AT)
    return World(catalog, tmp_path / "staging")


def interrupted(world: World, at: str = "c") -> None:
    world.dies_at = at
    with pytest.raises(Killed):
        world.verify()
    world.dies_at = ""


def test_case_70_tables_that_were_equal_are_not_read_again_after_a_verify_was_killed(world: World) -> None:
    interrupted(world)
    report = world.verify()
    assert world.read == ["c"]
    assert report.equal
    assert [(one.table, one.rows_upstream, one.rows_sink) for one in report.tables] == [
        (name, 7, 7) for name in "abc"
    ]
    assert set(report.recalled) == {"a", "b"}
    assert "compared at " in verify_text(report)


def test_one_that_ended_is_not_gone_on_with(world: World) -> None:
    interrupted(world)
    world.verify()
    assert world.verify().recalled == {}
    assert world.read == ["a", "b", "c"]


def test_a_table_that_differed_is_read_again(world: World) -> None:
    world.differs = "a"
    interrupted(world)
    assert not world.verify().equal
    assert world.read == ["a", "c"]


@pytest.mark.parametrize(
    "changed",
    [
        lambda world: setattr(world, "written", "2"),
        lambda world: setattr(world, "written", None),
        lambda world: setattr(world, "at", replace(AT, epoch=6)),
        lambda world: setattr(world, "at", replace(AT, attempt="y")),
        lambda world: setattr(world, "at", replace(AT, position=Position.of({"log": 6}))),
        lambda world: setattr(world, "job", replace(JOB, config='{"a": 1}')),
        lambda world: setattr(world, "job", replace(JOB, tables=TABLES[:2])),
        lambda world: world.catalog.verified.forget_equal("shop"),
    ],
)
def test_what_may_have_changed_is_read_again(world: World, changed: Callable[[World], None]) -> None:
    interrupted(world)
    changed(world)
    assert world.verify().recalled == {}
    assert world.read[:2] == ["a", "b"]


@pytest.mark.parametrize(
    ("asked", "independent"), [(Asked(("a", "b")), False), (Asked(sample=0.1), False), (Asked(), True)]
)
def test_what_was_not_asked_so_is_read_again(world: World, asked: Asked, independent: bool) -> None:
    interrupted(world)
    assert world.verify(asked, independent).recalled == {}


def test_another_basis_forgets_the_one_before(world: World) -> None:
    interrupted(world)
    world.written = "2"
    interrupted(world, at="b")
    world.written = "1"  # the old mark: impossible in practice, as marks never recur
    assert set(world.verify().recalled) == set()
    assert world.read == ["a", "b", "c"]


def test_the_mark_of_a_duckdb_file_is_another_one_once_somebody_wrote(tmp_path: Path) -> None:
    path = tmp_path / "w.duckdb"

    def written(sql: str) -> None:
        with duckdb.connect(str(path)) as con:
            con.execute(sql)

    def mark(live: bool = False) -> str | None:
        folder = tmp_path / "reads"
        folder.mkdir(exist_ok=True)
        with copied(path, Limits(), "shop", live, folder) as copy:
            return copy.mark()

    written("CREATE TABLE a AS SELECT 1 AS id")
    first = mark()
    assert first is not None
    assert mark() == first
    assert mark(live=True) is None
    before = path.stat()
    written("UPDATE a SET id = 2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert mark() != first
    assert json.loads(first)
