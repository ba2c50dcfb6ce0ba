"""The folder of staged files: attempts of one epoch, and a file that is gone or out of sight."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from stage_world import JOB, SCHEMAS, WINDOW, config, leftovers, read, stager, upstream

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.engine.job.create import create
from backfill_cli.engine.staging.files import footers, require_shared
from backfill_cli.engine.staging.stage import SparkStager
from backfill_cli.errors import Transient, UsageError
from backfill_cli.model.plan import EpochPlan, Staged, StagedFile, StagedTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["config", "stager", "upstream"]


def test_a_staging_folder_that_cannot_be_made_may_pass(stager: SparkStager, tmp_path: Path) -> None:
    (tmp_path / "staging").write_text("a file stands here")
    with pytest.raises(Transient, match="staging folder") as refused:
        stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS)
    with typed(refused.value) as hint:
        hint.says("check job.staging and the disk")
        (tmp_path / "staging").unlink()
        assert stager.stage(EpochPlan((read("orders", 0, 0, 2),)), 7, SCHEMAS).staged.tables["orders"].rows == 2


def test_case_41_two_attempts_of_one_epoch_share_no_file(stager: SparkStager) -> None:
    plan = EpochPlan((read("orders", 0, 0, 2),))
    first, second = (stager.stage(plan, 7, SCHEMAS).staged for _ in range(2))
    assert first.attempt != second.attempt
    stager.discard(7, first.attempt)
    assert stager.intact(7, second)
    assert not stager.intact(7, first)


def test_case_42_a_file_that_is_gone_or_of_another_size_is_damage(stager: SparkStager) -> None:
    plan = EpochPlan((read("orders", 0, 0, 2),))
    for damage in (Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-1])):
        staged = stager.stage(plan, 7, SCHEMAS).staged
        assert stager.intact(7, staged)
        damage(Path(stager.folder(7, staged.attempt)) / staged.tables["orders"].inserts[0].path)
        assert not stager.intact(7, staged)


def test_case_42_a_file_of_the_right_size_that_is_no_parquet_file_is_damage(stager: SparkStager) -> None:
    folder = Path(stager.folder(7, "a")) / "orders"
    folder.mkdir(parents=True)
    (folder / "0.parquet").write_bytes(b"x" * 20)
    assert not stager.intact(
        7, Staged("a", {"orders": StagedTable(changes=(StagedFile("orders/0.parquet", 20),))})
    )


def test_what_an_older_version_staged_is_read_under_the_names_of_now(stager: SparkStager) -> None:
    """A promise is applied from the same rows: some tables of a lake may have the epoch already."""
    older = {
        "_op": ["U"],
        "_unsent": [["v"]],
        "id": [1],
        "at": pa.array([-(2**63) + 1], pa.timestamp("us", "UTC")),
    }
    now = {"_backfill_op": ["U"], "_op": [5], "id": [1]}
    for changes, names in ((older, ["_backfill_op", "_backfill_unsent", "id", "at"]), (now, list(now))):
        folder = Path(stager.folder(7, "a"))
        (folder / "orders").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(changes), folder / "orders" / "c.parquet")
        pq.write_table(pa.table({"_op": [3], "id": [2]}), folder / "orders" / "i.parquet")
        paths = [StagedFile(f"orders/{n}.parquet", (folder / f"orders/{n}.parquet").stat().st_size) for n in "ic"]
        staged = Staged("a", {"orders": StagedTable(tuple(paths[:1]), tuple(paths[1:]), 1, 1)})
        for _ in range(2):  # a recovery that was killed is repeated
            assert stager.intact(7, staged)
            found = Path(stager.current_folder(7, staged))
            rows = pq.read_table(found / "orders" / "c.parquet")
            assert rows.equals(pa.table(list(pa.table(changes).columns), names))
            assert pq.read_table(found / "orders" / "i.parquet").column_names == ["_op", "id"]


def test_nulls_are_counted_in_the_key_and_not_in_a_field_of_its_name(tmp_path: Path) -> None:
    """A field `b` of a column `a` has the path of a column `a.b`, and a list or a map comes before the key."""
    pairs = pa.array([[("x", 1)], None], pa.map_(pa.string(), pa.int64()))
    inner = pa.array([{"b": None, "c": 1}, None], pa.struct([("b", pa.int64()), ("c", pa.int64())]))
    told = {"m": pairs, "l": [[1], None], "a": inner, "a.b": [1, 2], "k": [None, 2]}
    for rows in (pa.table(told), pa.table(dict(reversed(told.items())))):
        pq.write_table(rows, tmp_path / "0.parquet")
        file = StagedFile("0.parquet", 1)
        assert footers(tmp_path, (file,), ("a.b", "k", "a", "none")).nulls == {"a.b": 0, "k": 1, "a": 0, "none": 0}


def test_what_dead_attempts_left_is_swept_and_what_may_still_be_applied_is_kept(stager: SparkStager) -> None:
    root = Path(stager.folder(7, "x")).parent
    for name in ("7-keep", "7-dead", "6-dead", "notes-of-a-stranger"):
        (root / name).mkdir(parents=True)
    stager.sweep([(7, "keep")])
    assert sorted(f.name for f in root.iterdir()) == ["7-keep", "notes-of-a-stranger"]


@pytest.mark.parametrize("kept", [0, 1], ids=["no file is seen", "one of two files is seen"])
@pytest.mark.parametrize(
    "plan",
    [
        EpochPlan((read("orders", 0, 0, 2), read("orders", 1, 0, 1))),
        EpochPlan((read("items", 0, 0, 3),)),
        EpochPlan(window=WINDOW),
    ],
    ids=["snapshot", "snapshot, transformed", "changes"],
)
def test_an_epoch_whose_files_the_driver_does_not_see_fails(
    stager: SparkStager, monkeypatch: pytest.MonkeyPatch, plan: EpochPlan, kept: int
) -> None:
    """Executors that write to their own disk: an epoch without rows would commit, and its rows would be lost."""
    shown = Path.glob

    def hide(folder: Path, how: str) -> list[Path]:
        found = sorted(shown(folder, how))
        with_rows = [file for file in found if pq.read_metadata(file).num_rows]
        return with_rows[: kept if len(with_rows) > 1 else 0]

    def seen(file: Path) -> bool:
        return real(file) and (file.suffix != ".parquet" or (bool(kept) and "part-0-" in file.name))

    real = Path.exists
    monkeypatch.setattr(Path, "glob", hide)
    monkeypatch.setattr(Path, "exists", seen)
    with pytest.raises(Transient, match=r"of [1-3] rows? written to .*, [0-2] are visible there") as caught:
        stager.stage(plan, 7, SCHEMAS)
    monkeypatch.undo()
    assert leftovers(stager) == []
    with typed(caught.value) as hint:
        hint.says("set a folder that the driver and all executors share: job.staging")
        assert stager.stage(plan, 7, SCHEMAS).staged.tables


def test_a_start_on_a_cluster_tries_the_staging_folder_before_anything_is_made(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, columns in {
        "orders": {"id": [1], "v": [2]},
        "items": {"order": [1], "line": [1], "note": ["a"]},
    }.items():
        (tmp_path / table / "snapshot").mkdir(parents=True)
        (tmp_path / table / "changes").mkdir()
        pq.write_table(pa.table(columns), tmp_path / table / "snapshot" / "0.parquet")
    text = JOB.replace("HERE", str(tmp_path)).replace('"w.duckdb"', f'"{tmp_path}/w.duckdb"')
    text = text.replace('"{table}', f'"{tmp_path}/{{table}}') + '[spark]\nmaster = "spark://h:7077"\n'
    (tmp_path / "job.toml").write_text(text, "utf-8")
    config = load(tmp_path / "job.toml")
    require_shared(config, lambda: spark)
    assert list((tmp_path / "staging").iterdir()) == []
    monkeypatch.setattr(Path, "glob", lambda folder, how: iter(()))
    sink, catalog = config.open_sink(), Catalog(tmp_path / "c.duckdb")
    world = SimpleNamespace(
        spark=spark,
        upstream=config.open_upstream(),
        sink=sink,
        with_retries=lambda act: act(),
        begin_spark=lambda: None,
    )
    with pytest.raises(UsageError, match=r"of 16 rows written to .*, 0 are visible there"):
        create(config, catalog, world, "forever", False)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert list((tmp_path / "staging").iterdir()) == []
    assert not (tmp_path / "w.duckdb").exists()
    assert catalog.jobs() == ()
