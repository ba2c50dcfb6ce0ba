"""Changes that can lack columns: netted, completed and shaped, compared with applying them one by one."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from net_cases import KEY, MAY_LACK, Change, few, found, frame, in_order, many

from backfill_cli.cdc.net import net
from backfill_cli.config.sections import Transform
from backfill_cli.config.transforms import kept
from backfill_cli.contracts import TakenTable
from backfill_cli.engine.staging import changes, transform
from backfill_cli.engine.staging.files import FAST
from backfill_cli.errors import BadData
from backfill_cli.model.plan import StagedFile, StagedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@few
@given(many)
def test_a_select_renames_what_a_row_lacks_and_leaves_out_what_the_sink_does_not_get(
    spark: "SparkSession", cases: list[list[Change]]
) -> None:
    shape = Transform(select=["n", "`a key` AS id", "BIG AS `Big text`", "v * 2 AS twice"])
    names = kept(shape, MAY_LACK)
    assert names == {"big": "Big text"}
    shaped = transform.shaped(net(frame(spark, cases), KEY, MAY_LACK), shape, names)
    assert shaped.columns == ["_backfill_op", "_backfill_unsent", "n", "id", "Big text", "twice"]
    expected = [
        {
            key: row
            and (
                row[1],
                row[0] if row[0] is None else row[0] * 2,
                tuple("Big text" for name in row[3] if name == "big"),
            )
            for key, row in in_order(case).items()
        }
        for case in cases
    ]
    assert found(shaped.collect(), ("Big text", "twice")) == expected


def staged_of(spark: "SparkSession", taken: TakenTable, shape: Transform, folder: Path) -> StagedTable:
    table: Any = SimpleNamespace(name="t", key=KEY)
    upstream: Any = None
    return changes.staged(spark, upstream, table, taken, shape, folder).table


def kept_files(spark: "SparkSession", source: "DataFrame", folder: Path, parts: int = 3) -> tuple[StagedFile, ...]:
    path = folder / changes.FOLDER
    source.repartition(parts).write.options(**FAST).parquet(str(path / "t"))
    files = sorted((path / "t").glob("*.parquet"))
    return tuple(StagedFile(f"t/{file.name}", file.stat().st_size) for file in files)


def read(spark: "SparkSession", folder: Path, staged: StagedTable) -> list[Any]:
    if not staged.changes:
        return []
    return spark.read.parquet(*(str(folder / file.path) for file in staged.changes)).collect()


@few
@given(many, st.booleans())
def test_what_is_staged_is_the_net_of_what_was_taken(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory, cases: list[list[Change]], shaped: bool
) -> None:
    folder = tmp_path_factory.mktemp("attempt")
    files = kept_files(spark, frame(spark, cases), folder)
    taken = TakenTable(files, netted=False, changes=99, truncated=shaped, partial=MAY_LACK)
    shape = Transform(select=["`a doc`", "n", "big", "v", "`a key`"]) if shaped else Transform()
    staged = staged_of(spark, taken, shape, folder)
    net = [in_order(case) for case in cases]
    assert found(read(spark, folder, staged), ("v", "big", "a doc")) == net
    assert staged.changed == sum(row is not None for case in net for row in case.values())
    assert staged.deleted == sum(row is None for case in net for row in case.values())
    assert staged.truncated == shaped
    assert sorted(staged.partial) == ["a doc", "big"]
    assert all(f.size_bytes == (folder / f.path).stat().st_size for f in staged.changes)


ONE = [Change("U", 1, 7, "x", "y"), Change("U", 2, 8, lacks=("big",)), Change("D", 3)]


def test_net_changes_that_nothing_shapes_are_staged_as_they_are(spark: "SparkSession", tmp_path: Path) -> None:
    files = kept_files(spark, frame(spark, [ONE]), tmp_path)
    taken = TakenTable(files, True, 3, 2, 1, True, ("big",))
    staged = staged_of(spark, taken, Transform(), tmp_path)
    paths = tuple(StagedFile(f"{changes.FOLDER}/{file.path}", file.size_bytes) for file in files)
    assert staged == StagedTable(changes=paths, changed=2, deleted=1, truncated=True, partial=("big",))


def test_net_changes_that_are_shaped_are_written_anew(spark: "SparkSession", tmp_path: Path) -> None:
    files = kept_files(spark, frame(spark, [ONE]), tmp_path)
    shape = Transform(select=["n", "`a key` AS id", "big AS text"])
    staged = staged_of(spark, TakenTable(files, True, 3, 2, 1, partial=("big",)), shape, tmp_path)
    rows = {
        row["id"]: (row["_backfill_op"], row["text"], row["_backfill_unsent"])
        for row in read(spark, tmp_path, staged)
    }
    assert rows[1] == ("U", "x", [])
    assert rows[2][::2] == ("U", ["text"])
    assert rows[3][0] == "D"
    assert (staged.changed, staged.deleted, staged.partial) == (2, 1, ("text",))


@pytest.mark.parametrize("partial", [("big",), ()])
@pytest.mark.parametrize("where", [None, "v > 7"])
def test_where_nothing_that_a_row_may_lack_is_selected_the_sink_hears_of_none(
    spark: "SparkSession", tmp_path: Path, partial: tuple[str, ...], where: str | None
) -> None:
    log = ONE if partial else [Change("U", 1, 7, "x", "y"), Change("U", 2, 8, "z"), Change("D", 3)]
    source = frame(spark, [log])
    files = kept_files(spark, source if partial else source.drop("_backfill_unsent"), tmp_path)
    shape = Transform(select=["n", "`a key` AS id", "v"], where=where)
    staged = staged_of(spark, TakenTable(files, True, 3, partial=partial), shape, tmp_path)
    assert staged.partial == ()
    rows = read(spark, tmp_path, staged)
    assert "_backfill_unsent" not in rows[0].asDict()
    assert sorted((row["id"], row["_backfill_op"]) for row in rows) == [
        (1, "D" if where else "U"),
        (2, "U"),
        (3, "D"),
    ]


@pytest.mark.parametrize(
    "shape", [Transform(select=["n", "`a key`", "upper(big) AS big"]), Transform(where="big LIKE 'x%'")]
)
def test_no_expression_computes_with_a_value_that_was_left_out(
    spark: "SparkSession", tmp_path: Path, shape: Transform
) -> None:
    """A start refuses this, but the upstream can send less later."""
    files = kept_files(spark, frame(spark, [ONE]), tmp_path)
    with pytest.raises(
        BadData, match="table 't': changes leave out the value of big, but it is needed by"
    ) as refused:
        staged_of(spark, TakenTable(files, True, 3, partial=("big",)), shape, tmp_path)
    with typed(refused.value.naming("j", True)) as hint:
        assert hint.statements() == ["ALTER TABLE t REPLICA IDENTITY FULL"]  # PostgreSQL itself: tests/postgres
        assert hint.commands() == [["drop", "j", "--with-rows", "--confirm", "j"]]  # typed in test_hints.py
        changes.require_whole("t", (), shape)  # of whole rows nothing is left out


@pytest.mark.parametrize("truncated", [True, False])
def test_a_table_without_files_is_truncated_at_most(
    spark: "SparkSession", tmp_path: Path, truncated: bool
) -> None:
    taken = TakenTable(changes=5, truncated=truncated)
    assert staged_of(spark, taken, Transform(), tmp_path) == StagedTable(truncated=truncated)


def test_rows_that_were_read_go_where_a_truncate_is_in_their_window() -> None:
    rows = StagedTable((StagedFile("i", 1),), rows=5)
    net = StagedTable(changes=(StagedFile("c", 1),), changed=2, deleted=1, partial=("big",))
    over = changes.over(rows, net)
    assert (over.inserts, over.rows, over.changes, over.changed) == (rows.inserts, 5, net.changes, 2)
    assert (over.deleted, over.partial, over.truncated) == (1, ("big",), False)
    emptied = StagedTable(changes=(StagedFile("c", 1),), changed=2, truncated=True)
    assert changes.over(rows, emptied) == emptied
