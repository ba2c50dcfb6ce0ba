"""A plan and a start of a config that is broken end alike, and a refused start leaves its folder as it was."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_builders import CONFIG, Run, write_config
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

SNAPSHOT = Path("data/snapshot")


def no_such_path(text: str) -> str:
    return text.replace("data/snapshot", "data/nowhere")


def key_of_no_column(text: str) -> str:
    return text.replace('key = ["id"]', 'key = ["nope"]')


def broken_file(text: str) -> str:
    (SNAPSHOT / "b.parquet").write_bytes(b"PAR1 no more")
    return text


def other_columns(text: str) -> str:
    pq.write_table(pa.table({"id": ["x"]}), SNAPSHOT / "b.parquet")
    return text


def columns_that_differ_in_case(text: str) -> str:
    pq.write_table(pa.table({"id": [1], "a": [1], "A": [2]}), SNAPSHOT / "a.parquet")
    return text


def column_of_ours(text: str) -> str:
    pq.write_table(pa.table({"id": [1], "_Backfill_x": [1]}), SNAPSHOT / "a.parquet")
    return text


def folder_of_a_table(text: str) -> str:
    (SNAPSHOT / "_delta_log").mkdir()
    return text


def key_twice(text: str) -> str:
    pq.write_table(pa.table({"id": [7, 2]}), SNAPSHOT / "c.parquet")
    pq.write_table(pa.table({"id": [7]}), SNAPSHOT / "d.parquet")
    return text


def unknown_option(text: str) -> str:
    return text.replace("[sink]", "[sink]\nnope = 1")


def unset_secret(text: str) -> str:
    return text.replace('path = "warehouse.duckdb"', 'path = "${env:BACKFILL_NOT_SET}/w.duckdb"')


def strategy_that_does_not_fit(text: str) -> str:
    return text.replace('name = "orders"', 'name = "orders"\nstrategy = "arrangement"', 1)


def sink_that_is_another_file(text: str) -> str:
    Path("warehouse.duckdb").write_text("not a database, but what somebody needs")
    return text


FAULTS = (
    no_such_path,
    key_of_no_column,
    broken_file,
    other_columns,
    columns_that_differ_in_case,
    column_of_ours,
    folder_of_a_table,
    key_twice,
    unknown_option,
    unset_secret,
    strategy_that_does_not_fit,
    sink_that_is_another_file,
)
USAGE = {
    no_such_path,
    key_of_no_column,
    columns_that_differ_in_case,
    column_of_ours,
    folder_of_a_table,
    unknown_option,
    unset_secret,
    strategy_that_does_not_fit,
}


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file of the folder with its content, and every folder."""
    return {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in folder.rglob("*")}


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=3, unique=True))
@example([no_such_path])
@example([key_of_no_column])
@example([columns_that_differ_in_case])
@example([key_twice])
@example([sink_that_is_another_file])
def test_a_plan_ends_as_the_start_does_and_a_refused_start_changes_nothing(
    run: Run, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, faults: list[object]
) -> None:
    folder = tmp_path_factory.mktemp("refused")
    monkeypatch.chdir(folder)
    SNAPSHOT.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), SNAPSHOT / "a.parquet")
    text = CONFIG
    for fault in faults:
        text = fault(text)  # type: ignore[operator]
    file = write_config(folder, text)
    before = tree(folder)
    planned = run("plan", "--config", file)
    assert tree(folder) == before
    started = run("start", "--config", file, "--until", "caught-up")
    assert started.exit_code == planned.exit_code != 0, (planned.output, started.output)
    if set(faults) <= USAGE:
        assert started.exit_code == 2, started.output
    assert tree(folder) == before
