"""Rows that workers produce: pieces in parts, each once and in order; and whether workers are able to."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from backfill_cli.contracts import Piece
from backfill_cli.errors import Fatal
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.arrow_tasks import PART_ROWS, packed


@given(st.lists(st.integers(0, 2 * PART_ROWS), max_size=60), st.integers(1, 8))
def test_every_piece_is_in_one_part_and_no_part_is_larger_than_it_must(rows: list[int], cores: int) -> None:
    pieces = [(Piece(read, f"p{read}"), count) for read, count in enumerate(rows)]
    parts = packed(pieces, cores)
    assert [piece for part in parts for piece in part] == [piece for piece, _ in pieces]
    most = min(PART_ROWS, -(-sum(rows) // cores)) or 1
    for part in parts:
        held = [rows[piece.read] for piece in part]
        assert sum(held) <= most or len(held) == 1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 8))
def test_many_small_pieces_are_few_parts(rows: list[int], cores: int) -> None:
    parts = packed([(Piece(read, None), count) for read, count in enumerate(rows)], cores)
    assert len(parts) <= 2 * cores + 1


@dataclass(eq=False)
class Cluster:
    """A session whose only worker answers with a version, or fails. Also stands for the frame that asks it."""

    says: str | Exception
    asked: int = 0
    conf: dict[str, str] = field(default_factory=lambda: {"spark.master": "spark://host:7077"})

    def toArrow(self) -> pa.Table:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return pa.table({"version": [self.says]})


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_tasks, "frame", lambda spark, *_: spark)


def know_us(cluster: Any) -> bool:
    return arrow_tasks.workers_know_us(cluster)


def test_workers_with_this_package_are_asked_once() -> None:
    cluster = Cluster(arrow_tasks.__version__)
    assert know_us(cluster)
    assert know_us(cluster)
    assert cluster.asked == 1


def test_workers_without_it_do_not_know_us() -> None:
    assert not know_us(Cluster(PySparkException("ModuleNotFoundError: No module named 'backfill_cli'")))


def test_workers_with_another_version_are_refused() -> None:
    cluster = Cluster("0.0.0")
    with pytest.raises(Fatal, match=r"executors have backfill-cli 0\.0\.0, but this is") as refused:
        know_us(cluster)
    with typed(refused.value) as hint:  # on real executors: systems/test_cluster.py
        hint.says("install the packages of this job on the executors")
        cluster.says = arrow_tasks.__version__
        assert know_us(cluster)


def test_a_question_that_fails_in_passing_is_no_answer() -> None:
    cluster = Cluster(PySparkException("executor lost"))
    with pytest.raises(PySparkException):
        know_us(cluster)
    cluster.says = arrow_tasks.__version__
    assert know_us(cluster)


def test_local_workers_are_our_own() -> None:
    cluster = Cluster("0.0.0", conf={"spark.master": "local[2]"})
    assert know_us(cluster)
    assert cluster.asked == 0
