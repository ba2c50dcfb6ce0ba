"""An epoch plan that cannot be staged: what is named, what may pass, and that nothing is left."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hint_typed import typed
from stage_world import (
    JOB,
    SCHEMAS,
    WINDOW,
    Upstream,
    WorkersUpstream,
    config,
    leftovers,
    read,
    stager,
    struct,
    tasks,
    upstream,
)

from backfill_cli.config import JobConfig, load
from backfill_cli.config.sections import Transform
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import BadData, Fatal, Transient
from backfill_cli.model.plan import ChangeWindow, EpochPlan
from backfill_cli.model.position import START
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config", "stager", "upstream"]


def test_a_null_key_in_the_snapshot_is_named_and_nothing_is_left(stager: SparkStager, upstream: Upstream) -> None:
    upstream.rows["items"] = [[(1, 1, "a"), (1, None, "b"), (2, None, "c")]]
    with pytest.raises(
        BadData, match=r"table 'items': key column 'line' is NULL in 2 rows of the snapshot"
    ) as told:
        stager.stage(EpochPlan((read("items", 0, 0, 3),)), 7, SCHEMAS)
    assert leftovers(stager) == []
    with typed(told.value) as hint:
        hint.says("drop the job and start over, with the snapshot corrected")
        upstream.rows["items"] = [[(1, 1, "a"), (1, 2, "b"), (2, 1, "c")]]
        assert stager.stage(EpochPlan((read("items", 0, 0, 3),)), 7, SCHEMAS).staged.tables["items"].rows == 3


def test_a_null_key_in_a_table_without_transform_is_named(stager: SparkStager, upstream: Upstream) -> None:
    upstream.rows["orders"] = [[(1, 1), (None, 2)]]
    with pytest.raises(BadData, match=r"table 'orders': key column 'id' is NULL in 1 row of the snapshot"):
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)
    assert leftovers(stager) == []


def test_a_null_key_in_the_change_log_is_named_also_where_it_is_netted_away(
    stager: SparkStager, upstream: Upstream
) -> None:
    upstream.log["orders"] = [("U", 1, 1, None, 1), ("D", 2, 2, None, None)]
    with pytest.raises(
        BadData, match=r"table 'orders': key column 'id' is NULL in 2 rows of the change log"
    ) as told:
        stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS)
    assert leftovers(stager) == []
    # A correction upstream would only add changes after this one: the log still has it.
    hint = str(told.value.naming("late", True).hint)
    assert "then backfill drop late --with-rows --confirm late, and start over" in hint
    with typed(told.value) as over:
        over.commands()  # typed in test_hints.py; from a snapshot with the correction, the log begins after them
        upstream.log["orders"] = [("U", 3, 3, 5, 1)]
        assert stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS).staged.tables["orders"].changed == 1


def test_a_null_key_in_a_log_that_can_be_corrected_needs_no_new_job(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.log["orders"] = [("U", 1, 1, None, 1)]
    monkeypatch.setattr(Upstream, "capabilities", replace(upstream.capabilities, correctable_log=True))
    with pytest.raises(BadData, match=r"key column 'id' is NULL in 1 row of the change log") as told:
        stager.stage(EpochPlan(window=WINDOW), 7, SCHEMAS)
    assert str(told.value.way_on("late")).startswith("correct the change file")
    assert str(told.value.way_on("late")).endswith("; then: backfill resume late")


def test_another_change_of_the_schema_stops_before_anything_is_read(
    stager: SparkStager, upstream: Upstream
) -> None:
    window = ChangeWindow(START, WINDOW.up_to, 5, 6, 1, (("orders", struct(id="long", v="string")),))
    with pytest.raises(BadData, match="integer became string"):
        stager.stage(EpochPlan(window=window), 7, SCHEMAS)
    assert upstream.asked == []


def test_an_added_column_that_the_transform_calls_another_stops_before_anything_is_read(
    spark: "SparkSession", config: JobConfig
) -> None:
    upstream = Upstream()

    def tables(*select: str) -> SparkStager:
        orders = config.tables[0].model_copy(update={"transform": Transform(select=list(select))})
        return SparkStager(lambda: spark, upstream, replace(config, tables=(orders,)))  # type: ignore[arg-type]

    upstream.log["orders"] = [("U", 1, 1, 1, 2, 3)]
    window = ChangeWindow(START, WINDOW.up_to, 5, 6, 1, (("orders", struct(id="long", v="integer", W="integer")),))
    with pytest.raises(BadData, match="table 'orders': 'W' and 'w': a column was added") as caught:
        tables("*", "v + 1 AS w").stage(EpochPlan(window=window), 7, SCHEMAS)
    assert upstream.asked == []
    with typed(caught.value.naming("shop", True)) as hint:
        hint.says("give the column of the transform another name (AS)")
        assert hint.commands() == [["drop", "shop", "--with-rows", "--confirm", "shop"]]  # typed in test_hints.py
        staged = tables("*", "v + 1 AS more").stage(EpochPlan(window=window), 7, SCHEMAS).staged
        assert staged.tables["orders"].changed == 1


@pytest.mark.parametrize("there", [[[(1, 10)], [(3, 30)]], [[(1, 10), (2, 20)], [(3, 30), (3, 30)]]])
def test_a_source_that_loses_rows_or_makes_some_up_stops_the_job(
    stager: SparkStager, upstream: Upstream, there: list[list[tuple[int, int]]]
) -> None:
    """Nothing else would notice: the counts of an epoch are those of what was staged."""
    right, upstream.rows["orders"] = upstream.rows["orders"], there
    plan = EpochPlan((read("orders", 0, 0, 2), read("orders", 1, 0, 1)))
    upstream.row_count = lambda one: {"0": 2, "1": 1}[one.split]  # type: ignore[method-assign]
    upstream.part = lambda table, one: upstream.rows[table][int(one.split)]  # type: ignore[method-assign]
    stated = r"table 'orders': metadata states \d rows? in .*, but \d were read"
    with pytest.raises(Fatal, match=stated) as told:
        stager.stage(plan, 7, SCHEMAS)
    assert leftovers(stager) == []
    with typed(told.value) as hint:
        hint.says("its batches, scan and row_count contradict each other")
        upstream.rows["orders"] = right
        assert stager.stage(plan, 7, SCHEMAS).staged.tables["orders"].rows == 3


def test_a_source_whose_workers_say_the_wrong_read_of_a_row_stops_the_job(
    spark: "SparkSession", config: JobConfig
) -> None:
    """The split whose rows it hides would never be verified."""
    upstream = WorkersUpstream()
    of_one = tasks([(0, upstream.rows["orders"][0]), (0, upstream.rows["orders"][1])], SCHEMAS["orders"])
    upstream.batches = lambda *_: of_one  # type: ignore[method-assign]
    plan = EpochPlan((read("orders", 0, 0, 2), read("orders", 1, 0, 1)))
    with pytest.raises(Fatal, match=r"states 2 rows in '0', but 3 were read"):
        SparkStager(lambda: spark, upstream, config).stage(plan, 7, SCHEMAS)  # type: ignore[arg-type]


def _broken(message: str) -> Callable[..., Any]:
    def scan(*_: Any) -> Any:
        raise RuntimeError(message)

    return scan


def test_what_spark_says_of_a_broken_upstream_is_told_in_its_words(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = EpochPlan((read("orders", 0, 0, 2),))
    for read_by in ("scan", "batches"):
        monkeypatch.setattr(upstream, read_by, _broken("cannot read part-1"), raising=False)
    with pytest.raises(Fatal, match="part-1 is no Parquet file"):
        stager.stage(plan, 7, SCHEMAS)
    for read_by in ("scan", "batches"):
        monkeypatch.setattr(upstream, read_by, _broken("our own mistake"), raising=False)
    with pytest.raises(RuntimeError, match="our own mistake"):
        stager.stage(plan, 7, SCHEMAS)
    assert leftovers(stager) == []


@pytest.mark.parametrize(
    "said", ["OSError: [errno 28] No space left on device", "IOException: Disk quota exceeded"]
)
def test_case_43_a_full_staging_disk_may_pass_and_leaves_nothing(
    stager: SparkStager, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    for read_by in ("scan", "batches"):
        monkeypatch.setattr(upstream, read_by, _broken(said), raising=False)
    with pytest.raises(
        Transient, match=r"(No space left on device|Disk quota exceeded): the staging folder"
    ) as caught:
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)
    assert leftovers(stager) == []
    with typed(caught.value) as hint:
        hint.says("free disk space, or change job.staging or spark.conf.'spark.local.dir'")
        monkeypatch.undo()
        assert stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS).staged.tables["orders"].rows == 2


NOT_UTF8 = "CAST(X'61FF62' AS STRING)"


@pytest.mark.parametrize(
    "note",
    [
        NOT_UTF8,
        f"array('a', {NOT_UTF8})",
        f"map('k', {NOT_UTF8})",
        f"map({NOT_UTF8}, 1)",
        f"named_struct('x', array(named_struct('y', {NOT_UTF8})))",
    ],
    ids=["text", "array", "map", "map key", "struct"],
)
@pytest.mark.parametrize(
    "plan", [EpochPlan((read("items", 0, 0, 3),)), EpochPlan(window=WINDOW)], ids=["rows", "changes"]
)
def test_text_that_is_not_utf8_is_refused_while_it_is_staged(
    spark: "SparkSession", tmp_path: Path, plan: EpochPlan, note: str
) -> None:
    text = JOB.replace("HERE", str(tmp_path)).replace("upper(note) AS note", f"{note} AS note")
    (tmp_path / "job.toml").write_text(text, "utf-8")
    upstream = Upstream()
    upstream.failure = from_spark  # type: ignore[assignment, method-assign]
    stager = SparkStager(lambda: spark, upstream, load(tmp_path / "job.toml"))  # type: ignore[arg-type]
    with pytest.raises(BadData, match="column 'note': text that is not UTF-8") as caught:
        stager.stage(plan, 7, SCHEMAS)
    assert ("61FF62" in caught.value.message) == (note == NOT_UTF8)
    assert leftovers(stager) == []
    if note != NOT_UTF8:
        return
    with typed(caught.value) as hint:
        hint.says("or drop the job and start over, with the column read as bytes in the transform: select = ")
        (tmp_path / "job.toml").write_text(text.replace(f"{note} AS", f"CAST({note} AS BINARY) AS"), "utf-8")
        stager = SparkStager(lambda: spark, upstream, load(tmp_path / "job.toml"))  # type: ignore[arg-type]
        assert "items" in stager.stage(plan, 7, SCHEMAS).staged.tables
