"""Spool entries netted together, compared with applying their changes one after the other."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_cases import KEY, MAY_LACK, Change, few, found, frame, in_order, many
from spool_entries import at
from stage_world import struct

from backfill_cli.config.sections import Transform
from backfill_cli.contracts import Capabilities, ChangeFrame, Pinned, SpoolEntry, TakenTable, own
from backfill_cli.engine.spool.folder import Spool
from backfill_cli.engine.spool.upstream import SpooledUpstream, drained
from backfill_cli.engine.staging import changes, quarantine
from backfill_cli.engine.staging import stage as staging
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import BadData
from backfill_cli.model.plan import ChangeWindow, EpochPlan, StagedFile, StagedTable
from backfill_cli.spark.api import F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def taken(
    spark: "SparkSession",
    spool: Spool,
    number: int,
    cases: Sequence[Sequence[Change]],
    truncated: bool,
    older: bool = False,
    unreadable: int = 0,
) -> SpoolEntry:
    """An entry of these changes; if no change lacks columns, the entry has no column that names missing ones.

    older: with the names that our columns had before all of them got one prefix. unreadable: that many rows of a
    key of their own that are to be quarantined; without one, no column tells of them.
    """
    window = ChangeWindow(at(number), at(number + 1), number, number, 1)
    entry = SpoolEntry(number, "0123456789ab", window, {})
    folder = spool.place(entry.name)
    lacking = tuple(n for n in MAY_LACK if any(n in c.lacks and c.op == "U" for case in cases for c in case))
    source = frame(spark, cases)
    source = source if lacking else source.drop("_backfill_unsent")
    names = {name: f"_{name}" for name in ("op", "seq", "ms", "unsent")} if older else {}
    source = source.withColumnsRenamed({f"_backfill_{name}": before for name, before in names.items()})
    if unreadable:
        bad = frame(spark, [[Change("U", 99)] * unreadable]).drop(*({own.UNSENT} if not lacking else ()))
        bad = bad.withColumn(own.OP, F.lit(None).cast("string")).withColumn(own.QUARANTINED, F.struct(F.lit("f")))
        source = source.unionByName(bad, allowMissingColumns=True)
    source.coalesce(1).write.parquet(str(folder / "t"))
    files = tuple(
        StagedFile(str(path.relative_to(folder)), path.stat().st_size) for path in folder.glob("t/*.parquet")
    )
    changes = sum(map(len, cases))
    table = TakenTable(files, False, changes, changes, 0, truncated, lacking)
    return SpoolEntry(number, "0123456789ab", window, {"t": table})


def staged_of(
    spark: "SparkSession", spool: Spool, entries: Sequence[SpoolEntry], name: str, shape: Transform, folder: Path
) -> StagedTable:
    table: Any = SimpleNamespace(name=name, key=KEY)
    upstream: Any = None
    return changes.staged(spark, upstream, table, drained(spark, spool, entries, name), shape, folder).table


def rows(spark: "SparkSession", folder: Path, files: Sequence[StagedFile]) -> list[Any]:
    from pyspark.sql import functions as F

    frame = spark.read.parquet(*(str(folder / file.path) for file in files))
    if "_backfill_unsent" not in frame.columns:
        frame = frame.withColumn("_backfill_unsent", F.lit(None).cast("array<string>"))
    return frame.collect()


def cut(cases: Sequence[Sequence[Change]]) -> list[list[Sequence[Change]]]:
    """The changes of each case in three entries, cut at different places per case."""
    entries: list[list[Sequence[Change]]] = [[], [], []]
    for number, case in enumerate(cases):
        first = len(case) * (number % 4) // 4
        second = first + (len(case) - first) * (number % 3) // 2
        for entry, part in zip(entries, (case[:first], case[first:second], case[second:]), strict=True):
            entry.append(part)
    return entries


@few
@given(many, st.sampled_from((None, 1, 2)), st.sets(st.sampled_from((0, 1, 2))))
def test_what_is_drained_is_the_net_of_all_entries_from_the_last_truncate_on(
    spark: "SparkSession",
    tmp_path_factory: pytest.TempPathFactory,
    cases: list[list[Change]],
    truncated: int | None,
    older: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("job")
    alike = "202607091530-3f2a1b4c5d6e"  # as the folder of an entry is called
    spool = Spool(str(folder / alike / "a spool"), "j", "me")
    parts = cut(cases)
    entries = [taken(spark, spool, n, part, n == truncated, n in older) for n, part in enumerate(parts)]
    staged = staged_of(spark, spool, entries, "t", Transform(), folder)
    counted = parts[truncated or 0 :]
    net = [in_order([change for part in case for change in part]) for case in zip(*counted, strict=True)]
    assert found(rows(spark, folder, staged.changes), ("v", "big", "a doc")) == net
    assert staged.truncated == (truncated is not None)
    assert staged.changed == sum(row is not None for case in net for row in case.values())


def test_rows_that_cannot_be_read_stay_apart_from_entries_that_know_of_none(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The option can be set while entries wait."""
    spool = Spool(str(tmp_path), "j", "me")
    before = taken(spark, spool, 0, [[Change("U", 1, 1)]], False)
    after = taken(spark, spool, 1, [[Change("U", 2, 2)]], False, unreadable=2)
    found = drained(spark, spool, [before, after], "t")
    assert isinstance(found, ChangeFrame)
    good, side = quarantine.readable(spark, found.frame, "t", tmp_path / "epoch")
    assert sorted(good.toArrow()["v"].to_pylist()) == [1, 2]
    assert side["t.quarantine"].rows == 2


def test_a_table_without_changes_is_left_alone(spark: "SparkSession", tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "j", "me")
    entry = taken(spark, spool, 0, [[Change("D", 1)]], False)
    assert staged_of(spark, spool, [entry], "other", Transform(), tmp_path).changes == ()


def test_an_expression_over_what_was_left_out_stops_the_job(spark: "SparkSession", tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), "j", "me")
    entry = taken(spark, spool, 0, [[Change("U", 1, 1, lacks=("big",))]], False)
    shape = Transform(select=["n", "`a key`", "length(big) AS size"])
    with pytest.raises(BadData, match="big"):
        staged_of(spark, spool, [entry], "t", shape, tmp_path)


def test_the_sinks_schema_of_a_table_is_derived_once_and_not_per_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def derived(_spark: object, source: str, _shape: object) -> str:
        asked.append(source)
        return source

    monkeypatch.setattr(staging, "sink_schema", derived)
    table: Any = SimpleNamespace(name="t", key=KEY)
    job = SimpleNamespace(staging=str(tmp_path), name="j")
    config: Any = SimpleNamespace(job=job, tables=(table,), transform_of=lambda _: Transform())
    session: Any = SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None))
    log: Any = SimpleNamespace(capabilities=Capabilities(Pinned(), True, True))
    taker: Any = SimpleNamespace(entries=())
    upstream = SpooledUpstream(log, log, taker, Spool(str(tmp_path), "j", "me"))
    stager = SparkStager(lambda: session, upstream, config)
    plan = EpochPlan(window=ChangeWindow(at(0), at(1), 0, 0, 1), spooled=True)
    first, wider = ({"t": struct(**columns)} for columns in ({"n": "long"}, {"n": "long", "m": "long"}))
    for epoch in (1, 2):
        assert stager.stage(plan, epoch, first).sink_schemas == first
    assert stager.stage(plan, 3, wider).sink_schemas == wider
    assert asked == [first["t"], wider["t"]]
