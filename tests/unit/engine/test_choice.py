"""What an upstream and a sink say they can do is consulted before anything is read or written."""

from dataclasses import replace
from pathlib import Path

import pytest

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.contracts import TableSpec, UpstreamCapabilities
from backfill_cli.engine.job.choice import choose, constraints, require_keys
from backfill_cli.engine.job.preflight import plan
from backfill_cli.errors import UsageError

ALL = UpstreamCapabilities(pinned=True, keeps_log=True, before_images=True, one_log=True)
LOG = replace(ALL, pinned=False, partitioned=True)


def test_a_snapshot_needs_a_pin_and_every_strategy_a_log_that_is_kept() -> None:
    assert (choose("auto", ALL).strategy, choose("auto", LOG).strategy) == ("snapshot", "source")
    with pytest.raises(UsageError, match="pinned position"):
        choose("auto", replace(ALL, pinned=False))
    for upstream in (ALL, LOG):
        with pytest.raises(UsageError, match="does not keep its changes"):
            choose("auto", replace(upstream, keeps_log=False))


@pytest.mark.parametrize("one_log", [True, False])
@pytest.mark.parametrize("transactional", [True, False])
def test_constraints_hold_where_one_log_orders_tables_that_commit_together(
    one_log: bool, transactional: bool
) -> None:
    assert constraints(replace(ALL, one_log=one_log), transactional)[0] == (one_log and transactional)


@pytest.mark.parametrize("before_images", [True, False])
@pytest.mark.parametrize("immutable", [True, False])
@pytest.mark.parametrize("partitioned", [True, False])
def test_a_key_change_that_cannot_be_followed_is_refused(
    before_images: bool, immutable: bool, partitioned: bool
) -> None:
    upstream = replace(ALL, before_images=before_images, partitioned=partitioned)
    tables = [TableSpec("a", ("id",), immutable_key=True), TableSpec("b", ("id",), immutable_key=immutable)]
    if before_images or immutable or partitioned:
        require_keys(tables, upstream)
        return
    with pytest.raises(UsageError, match="table 'b': the change log sends no old key") as caught:
        require_keys(tables, upstream)
    assert "`immutable_key = true`" in caught.value.hint


def test_plan_refuses_dms_until_the_config_says_that_keys_never_change(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text(
        f"""
        [job]
        name = "orders"
        [upstream]
        type = "files"
        snapshot = {{ path = "{tmp_path}/snapshot", format = "parquet" }}
        changes = {{ path = "{tmp_path}/changes", format = "dms" }}
        [[tables]]
        name = "orders"
        key = ["id"]
        [sink]
        type = "duckdb"
        path = "{tmp_path}/warehouse.duckdb"
        """
    )
    with pytest.raises(UsageError, match="table 'orders': the change log sends no old key"):
        plan(load(config), Catalog(tmp_path / "catalog.duckdb"))
    assert not (tmp_path / "warehouse.duckdb").exists()
