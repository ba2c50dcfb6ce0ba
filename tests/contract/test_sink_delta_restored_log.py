"""RESTORE of a Delta sink's table: what its log shows of epochs, and what the log no longer has."""

import json
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hint_typed import typed

from backfill_cli.errors import Fatal, StateConflict, Transient
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.state import Claim
from backfill_cli.sinks.delta import restored
from backfill_cli.sinks.delta.marks import EPOCH_BITS, MarkedTable, epoch_of, number_of
from backfill_cli.sinks.delta.restored import Kept


@pytest.fixture
def table(tmp_path: Path) -> MarkedTable:
    """Version 0: created, with another writer's row."""
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [0]}))
    claim = Claim("delta:" + str(tmp_path / "t"), "c")
    marks = Blobs(pyarrow.fs.LocalFileSystem(), str(tmp_path / "marks"))
    return MarkedTable("orders", "orders", claim, Where.of(str(tmp_path / "t"), ""), marks)


def wrote(table: MarkedTable, *epochs: int | None) -> None:
    """One version for each; None for one of another writer."""
    for epoch in epochs:
        told = [] if epoch is None else [Transaction(table.app, number_of(1, epoch))]
        write_deltalake(
            table.where.library_uri,
            pa.table({"id": [epoch or 0]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=told),
        )


def took_back(table: MarkedTable, to: "int | datetime") -> None:
    DeltaTable(table.where.library_uri).restore(to)


def require(table: MarkedTable, epoch: int, kept: Kept | None = None) -> None:
    (kept or Kept()).require(table, DeltaTable(table.where.library_uri).version(), epoch)


def at(table: MarkedTable, version: int, seconds: int) -> datetime:
    """The version's time is that many seconds after the start of the year, in its log file and its commit."""
    time = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + seconds
    file = Path(table.where.log_file(version))
    told = [json.loads(line) for line in file.read_text().splitlines()]
    for one in told:
        one.get("commitInfo", {})["timestamp"] = int(time * 1000)
    file.write_text("\n".join(map(json.dumps, told)).replace('": ', '":'))
    os.utime(file, (time, time))
    return datetime.fromtimestamp(time, UTC)


def gone(table: MarkedTable, *versions: int) -> None:
    """The log is as log cleanup leaves it."""
    DeltaTable(table.where.library_uri).create_checkpoint()
    for version in versions:
        os.unlink(table.where.log_file(version))


def test_of_versions_that_a_restore_went_back_over_only_those_with_an_epoch_count(table: MarkedTable) -> None:
    wrote(table, 10, None, 20, None)  # versions 1 to 4
    took_back(table, 3)
    require(table, 20)
    wrote(table, 30)
    require(table, 30)
    took_back(table, 3)
    with pytest.raises(StateConflict, match="its rows are gone"):
        require(table, 30)
    took_back(table, 6)
    require(table, 30)


def test_an_epoch_written_onto_a_table_without_the_one_before_is_found_behind_it(table: MarkedTable) -> None:
    wrote(table, 10, 20)
    took_back(table, 1)
    wrote(table, 30)
    with pytest.raises(StateConflict, match="its rows are gone"):
        require(table, 30)


def test_a_restore_from_before_the_job_had_the_table_is_nothing_of_its(table: MarkedTable) -> None:
    wrote(table, None, None)
    took_back(table, 0)
    wrote(table, 0, 10)  # a fence is epoch 0 before the first
    require(table, 10)
    gone(table, 0, 1, 2)
    require(table, 10)


@pytest.mark.parametrize("cleaned", [(0,), (0, 1)])
def test_a_restore_to_a_version_that_the_log_has_no_longer_is_refused(
    table: MarkedTable, cleaned: tuple[int, ...]
) -> None:
    wrote(table, 10)
    took_back(table, 0)
    gone(table, *cleaned)
    with pytest.raises(StateConflict, match="its rows may be gone, as that part of the log no longer exists"):
        require(table, 10)


def test_a_log_that_begins_after_the_epoch_and_tells_of_no_restore_is_in_order(table: MarkedTable) -> None:
    wrote(table, 10, None, None)
    gone(table, 0, 1, 2)
    require(table, 10)


@pytest.mark.parametrize(("seconds", "lost"), [(25, False), (15, True)])
def test_a_restore_by_time_is_the_version_of_that_time(table: MarkedTable, seconds: int, lost: bool) -> None:
    wrote(table, None, 10, None)
    times = [at(table, version, version * 10) for version in range(4)]
    took_back(table, times[0].replace(second=seconds))
    if lost:
        with pytest.raises(StateConflict, match="its rows are gone"):
            require(table, 10)
    else:
        require(table, 10)


@pytest.mark.parametrize(
    ("told", "refused"),
    [
        ("2026-01-01 00:00:25.0", "the log does not show to which version"),
        ("2026-01-01T01:00:25+01:00", None),
        ("2026-01-01T01:00:15+01:00", "its rows are gone"),
        ("2026-01-03 00:00:00.0", None),
        ("yesterday", "the log does not show to which version"),
    ],
)
def test_a_time_without_a_zone_is_as_good_as_the_zones_agree(
    table: MarkedTable, told: str, refused: str | None
) -> None:
    wrote(table, None, 10, None, None)
    for version in range(4):
        at(table, version, version * 10)
    at(table, 4, 400_000)
    took_back(table, 3)
    file = Path(table.where.log_file(5))
    file.write_text(file.read_text().replace('"version":"3"', f'"timestamp":"{told}"'))
    if refused is None:
        require(table, 10)
    else:
        with pytest.raises(StateConflict, match=refused):
            require(table, 10)


def test_what_was_seen_once_is_not_read_again(table: MarkedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    told = restored._Back._told

    def counted(back: Any, version: int) -> Any:
        read.append(version)
        return told(back, version)

    monkeypatch.setattr(restored._Back, "_told", counted)
    kept = Kept()
    wrote(table, 10, *[None] * 5)
    require(table, 10, kept)
    assert len(read) == 7
    read.clear()
    require(table, 10, kept)
    assert read == []
    wrote(table, None, 20)
    require(table, 20, kept)
    assert read == [8, 7]
    took_back(table, 3)
    with pytest.raises(StateConflict, match="its rows are gone"):
        require(table, 20, kept)


def elsewhere(table: MarkedTable) -> MarkedTable:
    """The same table, its files not known to be on a disk."""
    where = replace(table.where, local=False)
    return replace(table, where=where)


def test_a_version_that_another_process_replaced_on_an_object_store_is_found(table: MarkedTable) -> None:
    kept, there = Kept(), elsewhere(table)
    wrote(table, 10)
    require(there, 10, kept)
    wrote(table, 20)
    require(there, 20, kept)
    Path(table.where.log_file(2)).write_bytes(Path(table.where.log_file(1)).read_bytes() + b"\n")
    with pytest.raises(
        StateConflict, match="replaced version 2 of its log after job 'orders' had read it"
    ) as error:
        require(there, 20, kept)
    with typed(error.value) as hint:
        hint.says("stop what else writes to the table, then drop the job and start over")
        over = replace(there, claim=Claim(table.claim.place, "another"))
        shutil.rmtree(table.where.folder)
        write_deltalake(table.where.library_uri, pa.table({"id": [0]}))
        wrote(over, 10)
        require(over, 10)


def test_a_clock_that_is_centuries_ahead_is_corrected() -> None:
    with pytest.raises(Fatal, match=r"commit .* has no number that fits a Delta table's transactions") as error:
        number_of(1, 2**EPOCH_BITS)
    with typed(error.value) as hint:
        hint.says("correct this machine's clock")
        assert epoch_of(number_of(1, 2**EPOCH_BITS - 1)) == 2**EPOCH_BITS - 1


def test_a_version_that_log_cleanup_removed_meanwhile_was_not_replaced(table: MarkedTable) -> None:
    kept, there = Kept(), elsewhere(table)
    wrote(table, 10)
    require(there, 10, kept)
    wrote(table, 20)
    gone(table, 0, 1)
    require(there, 20, kept)


def test_a_table_that_demands_more_of_a_writer_is_exchanged_for_one_that_does_not(
    table: MarkedTable, tmp_path: Path
) -> None:
    log = Path(table.where.log_file(0))
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": []}
    demands = {"protocol": {**features, "writerFeatures": ["rowTracking", "domainMetadata"]}}
    log.write_text("\n".join(json.dumps(demands if "protocol" in one else one) for one in actions))
    with pytest.raises(Fatal, match="a commit written without Spark is refused") as error:
        table.write(number_of(1, 10), 0)
    with typed(error.value) as hint:
        hint.says("name another table")
        write_deltalake(str(tmp_path / "other"), pa.table({"id": [0]}))
        assert replace(table, where=Where.of(str(tmp_path / "other"), "")).write(number_of(1, 10), 0)


def test_a_token_is_raised_once_other_writers_commit_less_often(
    table: MarkedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrote(table, 10)
    with monkeypatch.context() as patch:
        patch.setattr(MarkedTable, "write", lambda *_: False)  # another writer took the version
        with pytest.raises(Transient, match="other writers commit too often for its token to be raised") as error:
            table.raise_token(2)
    with typed(error.value) as hint:
        hint.says("let the table's other writers commit less often")
        table.raise_token(2)
        assert table.numbered() == (2, 2, 10)
