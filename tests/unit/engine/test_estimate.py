"""How long a snapshot takes is told by what was measured here, and by whose measure."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli.engine.job.estimate import SPARK_S, kinds, of_earlier, of_ledger, of_sample
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Phase

FILES = {"upstream": {"snapshot": {"path": "a", "format": "parquet"}, "type": "files"}, "sink": {"type": "duckdb"}}


def epoch(rows: int, stage_ms: int, commit_ms: int = 0) -> EpochRecord:
    return EpochRecord(1, 0, Phase.SNAPSHOT, 0, snapshot_rows=rows, stage_ms=stage_ms, commit_ms=commit_ms)


def test_epochs_of_a_snapshot_tell_the_rate_without_the_first_in_which_workers_start() -> None:
    found = of_ledger(
        [epoch(100_000, 9_000), epoch(100_000, 1_000), epoch(100_000, 1_000), epoch(0, 50)], "orders"
    )
    assert found is not None
    assert (found.slow, found.quick, found.by) == (100_000, 100_000, "as job 'orders' took here")
    assert found.seconds(1_000_000, None) == (SPARK_S + 10, SPARK_S + 10)
    assert found.seconds(1_000_000, 50_000.0) == (SPARK_S + 20, SPARK_S + 20)


def test_an_epoch_takes_as_long_as_the_slower_of_staging_and_commit() -> None:
    found = of_ledger([epoch(100_000, 1_000, 4_000)], "orders")
    assert found is not None
    assert found.quick == 25_000


@pytest.mark.parametrize("lines", [[], [epoch(100, 1)], [epoch(0, 5_000)]])
def test_little_tells_no_rate(lines: list[EpochRecord]) -> None:
    assert of_ledger(lines, "orders") is None
    assert of_sample(100, 1.0) is None
    assert of_sample(10**6, 0.0) is None


def test_a_sample_tells_a_range() -> None:
    found = of_sample(100_000, 0.1, cores=2)
    assert found is not None
    assert found.slow < 1_000_000 < found.quick == 2_000_000


def test_only_a_job_of_the_same_kind_is_taken_and_the_job_itself_first() -> None:
    other = FILES | {"sink": {"type": "delta"}}
    configs = {"delta": other, "lately": FILES, "orders": FILES}
    ledgers = {"delta": 1_000, "lately": 2_000, "orders": 4_000}
    catalog: Any = SimpleNamespace(
        jobs=lambda: [SimpleNamespace(name=name, epoch=at) for at, name in enumerate(configs)],
        definition=lambda name: SimpleNamespace(config=json.dumps(configs[name])),
        ledger=lambda name, _last: [epoch(100_000, ledgers[name])],
    )

    def rate(name: str, tree: dict[str, Any]) -> float:
        config: Any = SimpleNamespace(tree=tree, job=SimpleNamespace(name=name))
        found = of_earlier(config, catalog)
        return 0.0 if found is None else found.quick

    assert [rate("new", FILES), rate("lately", FILES), rate("new", other)] == [25_000, 50_000, 100_000]
    assert rate("new", FILES | {"transform": {"where": "id > 1"}}) == 0.0
    assert kinds(FILES) != kinds(FILES | {"upstream": {"type": "files", "snapshot": {"format": "csv"}}})
