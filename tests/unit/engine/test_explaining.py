"""What a failure means while rows of a source are read: the user sees an error of ours, wherever it was raised."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stage_world import SCHEMAS, Upstream, WorkersUpstream, config, leftovers, read

from backfill_cli import engine
from backfill_cli.config import JobConfig
from backfill_cli.contracts import ArrowTasks, Piece, Source
from backfill_cli.engine.staging.failures import explaining
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import BadData, Fatal, Transient
from backfill_cli.model.plan import EpochPlan
from backfill_cli.spark.failures import raising_in_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config"]


class Untold(WorkersUpstream):
    """Somebody else's, whose author knows nothing of failures."""

    failure = Source.failure


def test_our_own_error_that_a_worker_raised_is_the_jobs(spark: "SparkSession", config: JobConfig) -> None:
    def make(_: int) -> Iterator[Any]:
        raise Fatal("u.sqlite: the worker says no", "mend it")

    upstream = Untold()
    upstream.batches = lambda *_: ArrowTasks(make, ((Piece(0, 0),),), SCHEMAS["orders"])  # type: ignore[method-assign]
    stager = SparkStager(lambda: spark, upstream, config)  # type: ignore[arg-type]
    with pytest.raises(Fatal, match=r"^u.sqlite: the worker says no\nTry: mend it$"):
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)
    assert leftovers(stager) == []


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (Fatal("a.db: the worker says no", "mend it"), Fatal("a.db: the worker says no", "mend it")),
        (BadData("part-1: odd", "mend it"), BadData("part-1 is no Parquet file", "")),
        (Transient("part-1: No space left on device", ""), Transient("No space left on device", "")),
        (KeyError("a mistake"), KeyError("a mistake")),
    ],
    ids=["ours", "the source's", "a full disk", "nobody's"],
)
def test_who_is_asked_what_a_failure_means(config: JobConfig, raised: Exception, seen: Exception) -> None:
    with pytest.raises(type(seen)) as caught, explaining(Upstream(), config), raising_in_worker():
        raise raised
    assert str(seen).splitlines()[0] in str(caught.value)


def test_everything_in_the_engine_asks_in_this_way() -> None:
    asks = [
        path.relative_to(Path(engine.__file__).parent).as_posix()
        for path in Path(engine.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "failure"
        and ast.unparse(node.func.value) != "transform"
    ]
    assert set(asks) == {"staging/failures.py", "spool/upstream.py"}  # the latter is a source
