"""What passes by itself in a lake, or is put right by its owner, is told so; and then the same act succeeds."""

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hint_typed import typed
from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import StateConflict, Transient
from backfill_cli.lake import sink
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta.edge import Where, delta_errors
from backfill_cli.lake.iceberg.edge import failing, reading_metadata
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.sink import at_one_epoch
from backfill_cli.lake.state import Claim
from backfill_cli.model.checkpoint import Marker
from backfill_cli.sinks.delta.apply import delta_writing
from backfill_cli.sinks.delta.marks import MarkedTable, marks_of

TABLE = SinkTable("t", "t", ("id",), "{}")


class FromJava(Exception):
    """As py4j has it, without a gateway."""


@contextmanager
def _of_spark(place: Place) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backfill_cli.lake.iceberg.edge.Py4JError", FromJava)
        with failing(place):
            yield


def acts(folder: Path) -> dict[str, tuple[AbstractContextManager[Any], Exception, str]]:
    """By name: what guards a call of a library, what the call raises, what the hint says."""
    where, place = Where.of(str(folder), "t"), Place.of(str(folder))
    retried = "it is retried automatically"
    return {
        "the library of Delta": (delta_errors("t"), OSError("connection reset by peer"), retried),
        "Spark on Iceberg": (_of_spark(place), FromJava("java.net.ConnectException: refused"), retried),
        "pyiceberg": (reading_metadata(place), OSError(errno.EIO, "Input/output error"), retried),
        "Delta on a full disk": (
            delta_writing(TABLE, where),
            RuntimeError("java.io.IOException: No space left on device"),
            f"free disk space: df -h {folder}",
        ),
    }


@pytest.mark.parametrize(
    "which", ["the library of Delta", "Spark on Iceberg", "pyiceberg", "Delta on a full disk"]
)
def test_a_failure_that_passes_is_retried(tmp_path: Path, which: str) -> None:
    guard, failure, way_on = acts(tmp_path)[which]
    with pytest.raises(Transient) as passing, guard:
        raise failure
    with typed(passing.value) as hint:
        hint.says(way_on)
        with acts(tmp_path)[which][0]:
            done = True
        assert done


def test_tables_of_a_live_job_are_read_once_they_are_at_one_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "PATIENCE_S", 0.0)
    monkeypatch.setattr(sink, "RETRY_S", 0.0)
    state: Any = type("State", (), {"newest_epoch": lambda _: 20})()
    apart = {"a": (1, Marker(10, 1, "x")), "b": (2, Marker(20, 1, "y"))}
    with pytest.raises(Transient, match=r"several commits \(a: 10, b: 20\)") as passing:
        at_one_epoch("j", state, lambda: apart, live=True)
    with typed(passing.value) as hint:
        hint.says("it is retried automatically")
        one = apart | {"a": (3, Marker(20, 1, "y"))}
        assert at_one_epoch("j", state, lambda: one, live=True) == ({"a": 3, "b": 2}, Marker(20, 1, "y"))


def test_the_attempts_of_a_table_are_restored(tmp_path: Path) -> None:
    claim = Claim("delta:/t", "c")
    marks = marks_of(Blobs(LocalFileSystem(), str(tmp_path / "state")), "j", claim)
    table = MarkedTable("j", "t", claim, Where.of(str(tmp_path / "t"), "t"), marks)
    table.mark(1, 10, "a10", 0)
    (file,) = (path for path in (tmp_path / "state").rglob("*.txt"))
    file.rename(tmp_path / "copy")
    with pytest.raises(StateConflict, match="is at commit 10, which is missing from") as lost:
        table._attempt(10)
    with typed(lost.value) as hint:
        hint.says("restore it")
        (tmp_path / "copy").rename(file)
        assert table._attempt(10) == "a10"
