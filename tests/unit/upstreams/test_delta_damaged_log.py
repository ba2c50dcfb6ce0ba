"""A damaged Delta log is described by what is wrong with it: no words of the library's structures, no traces."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hint_typed import typed

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import BackfillError, Fatal, HistoryGone, UsageError
from backfill_cli.model.position import Position
from backfill_cli.upstreams.delta import connector
from backfill_cli.upstreams.delta.upstream import DeltaUpstream

NEWEST = 5


def append(table: Path, value: int) -> None:
    feed = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "1000"}
    rows = pa.table({"id": pa.array([value], pa.int64())})
    write_deltalake(str(table), rows, mode="append", configuration=feed)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for value in range(NEWEST + 1):
        append(tmp_path / "t", value)
    return tmp_path / "t"


def log(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def opened(table: Path, version: int | str = "latest") -> DeltaUpstream:
    options = connector.options.model_validate({"type": "delta", "table": str(table), "version": version})
    upstream: Any = connector.open(options, [TableSpec("t", ("id",))])
    return upstream  # type: ignore[no-any-return]


def clean(error: BackfillError) -> str:
    for words in ("Kernel", "ParsedLogPath", "{", "<unknown>", "Error", "not a complete"):
        assert words not in error.message, error.message
    return error.message


@pytest.mark.parametrize("gone", [[NEWEST + 1], [NEWEST + 1, NEWEST + 2], [NEWEST + 2], [*range(6, 10)]])
def test_case_73_a_version_that_the_log_lacks_is_noticed_by_a_running_job_and_by_the_next(
    table: Path, gone: list[int]
) -> None:
    upstream = opened(table)
    pin = upstream.pin()
    for value in range(NEWEST + 1, gone[-1] + 2):
        append(table, value)
    held = {version: log(table, version).read_bytes() for version in gone}
    for version in gone:
        log(table, version).unlink()
    again = opened(table)
    for one in (upstream, again):
        one.restore(pin)
        with pytest.raises(
            Fatal, match=f"version {gone[0]} is missing from its log, which has version"
        ) as refused:
            one.observe(pin.position, True)
        clean(refused.value)
    with typed(refused.value) as hint:
        hint.says("restore that file from a copy of the table")
        for version, content in held.items():
            log(table, version).write_bytes(content)
        for one in (upstream, again):
            assert one.observe(pin.position, True).latest == Position.of({"t": gone[-1] + 1})


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a hole": (lambda table: log(table, 3).unlink(), "version 3 is missing"),
    "no beginning": (lambda table: log(table, 0).unlink(), "version 0 is missing"),
    "half a line": (
        lambda table: log(table, 5).write_text('{"commitInfo":{"ti'),
        "version 5 of its log is damaged",
    ),
    "no JSON": (lambda table: log(table, 4).write_bytes(b"\x00\xff\n"), "version 4 of its log is damaged"),
    "nothing at first": (lambda table: log(table, 0).write_text(""), "version 0 of its log is damaged"),
    "no columns": (lambda table: log(table, 0).write_text('{"commitInfo":{}}'), "its log cannot be read"),
}


@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("version", ["latest", 2])
def test_a_damaged_log_is_refused_at_the_start_by_its_file(table: Path, what: str, version: int | str) -> None:
    do, expected = DAMAGE[what]
    whole = {one: log(table, one).read_bytes() for one in range(NEWEST + 1)}
    do(table)
    with pytest.raises(Fatal) as refused:
        opened(table, version).pin()
    assert expected in refused.value.message
    with typed(refused.value) as hint:
        if "cannot be read" in expected:
            hint.says("or restore _delta_log from a copy of the table")
        else:
            clean(refused.value)
            hint.says("restore that file from a copy of the table")
        for one, content in whole.items():
            log(table, one).write_bytes(content)
        opened(table, version).pin()


def test_a_version_that_the_table_does_not_have_yet_or_no_longer_has_is_exchanged_for_one_that_it_has(
    table: Path,
) -> None:
    DeltaTable(str(table)).create_checkpoint()
    log(table, 0).unlink()  # as log cleanup does
    for version, kind, why in ((99, UsageError, "has no version 99"), (0, HistoryGone, "no longer has version 0")):
        with pytest.raises(kind, match=why) as refused:
            opened(table, version).pin()
        with typed(refused.value) as hint:
            (newest,) = hint.settings().values()
            assert opened(table, str(newest)).pin().position == Position.of({"t": NEWEST})


def test_a_checkpoint_hint_that_cannot_be_read_is_none(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / "_last_checkpoint").write_text("{")
    pin = opened(table).pin()
    append(table, 6)
    upstream = opened(table)
    upstream.restore(pin)
    assert upstream.observe(pin.position, True).latest == Position.of({"t": 6})


def test_a_table_that_is_an_older_copy_is_not_taken_for_one_where_nothing_happens(table: Path) -> None:
    upstream = opened(table)
    pin = upstream.pin()
    newest = log(table, NEWEST).read_bytes()
    upstream.restore(pin)
    upstream.observe(pin.position, True)
    log(table, NEWEST).unlink()
    another = opened(table)
    another.restore(pin)
    for one in (upstream, another):
        with pytest.raises(Fatal, match=f"version {NEWEST}, which the job has read, is missing") as refused:
            one.observe(pin.position, True)
    append(table, 99)
    append(table, 99)  # others write on in the copy: the job's version is another one now
    with pytest.raises(Fatal, match=f"version {NEWEST} of its log is not the one that the job has read"):
        upstream.observe(pin.position, True)
    with typed(refused.value) as hint:
        hint.says("restore it")
        log(table, NEWEST + 1).unlink()
        log(table, NEWEST).write_bytes(newest)
        assert opened(table).pin() == pin


@pytest.mark.parametrize("applied", [NEWEST, NEWEST + 2])
def test_a_table_restored_and_written_on_while_the_job_was_stopped_is_not_followed(
    table: Path, tmp_path: Path, applied: int
) -> None:
    """The copy's versions after the job's would be read as if they followed what the sink has."""
    position = Position.of({"t": applied})
    shutil.copytree(table, tmp_path / "older", ignore=shutil.ignore_patterns(log(table, NEWEST).name))
    first = opened(table)
    pin = first.pin()
    append(table, 6)
    append(table, 7)
    first.restore(pin)
    first.observe(pin.position, True)
    first.acknowledge(position)
    memory = first.remembered(position)
    shutil.copytree(table, tmp_path / "whole")
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "older", table)
    for value in range(10, 10 + applied - NEWEST + 2):
        append(table, value)
    resumed = opened(table)
    resumed.restore(pin)
    resumed.recall(memory)
    says = f"version {applied} of its log is not the one that the job has read .*: the table was restored"
    with pytest.raises(Fatal, match=says) as refused:
        resumed.observe(position, False)
    verified = opened(table)
    verified.restore(pin)
    verified.recall(memory)
    with pytest.raises(Fatal, match=says):
        verified._rows_at(None, "t", position)  # type: ignore[arg-type]
    with typed(refused.value) as hint:
        hint.says("drop the job and start over")
        assert opened(table).pin().position == Position.of({"t": applied + 1})
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "whole", table)  # the newest copy is the job's table
    resumed = opened(table)
    resumed.restore(pin)
    resumed.recall(memory)
    assert resumed.observe(position, False).latest == Position.of({"t": NEWEST + 2})


def test_a_job_that_remembers_no_commit_learns_it_and_one_whose_log_was_cleaned_up_goes_on(table: Path) -> None:
    first = opened(table)
    pin = first.pin()
    older = opened(table)  # begun by an older version: nothing to recall
    older.restore(pin)
    assert older.observe(pin.position, True).pending == ()
    memory = older.remembered(pin.position)
    assert memory == first.remembered(pin.position) != ""
    append(table, 6)
    DeltaTable(str(table)).create_checkpoint()
    log(table, NEWEST).unlink()
    for told in (memory, ""):
        later = opened(table)
        later.restore(pin)
        if told:
            later.recall(told)
        assert later.observe(pin.position, True).latest == Position.of({"t": 6})
        assert json.loads(later.remembered(pin.position)) == json.loads(told or "{}")
