"""How long lake tables keep what is not read; deltalake and pyiceberg write them, without Spark."""

import re
from pathlib import Path

import hint_words
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from oracle.lake_writers import Folder

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.errors import Hint
from backfill_cli.lake.delta.edge import Where
from backfill_cli.model.headroom import Headroom, Kept, Unread
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.delta import connector as delta
from backfill_cli.upstreams.delta.headroom import CLEANUP, FILES, LOG, interval_ms
from backfill_cli.upstreams.delta.headroom import headroom as of_delta
from backfill_cli.upstreams.iceberg import connector as iceberg
from backfill_cli.upstreams.iceberg.headroom import AGE, COLLECTS, LEAST, Expiry
from backfill_cli.upstreams.iceberg.headroom import headroom as of_iceberg

NOW_MS = 1_800_000_000_000
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
UNREAD = Unread(START, True, NOW_MS)
ROW = pa.table({"id": pa.array([1], pa.int64())})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("interval 1 week", 7 * DAY_MS),
        ("INTERVAL 30 DAYS", 30 * DAY_MS),
        ("interval 1 week 2 days 3 hours", 9 * DAY_MS + 3 * HOUR_MS),
        ("7 days", 7 * DAY_MS),
        ("interval 90 minutes", 90 * 60_000),
        ("interval 0 hours", 0),
        ("interval 1 month", None),
        ("interval 1 day 1 fortnight", None),
        ("soon", None),
        ("", None),
    ],
)
def test_deltas_intervals_are_read_or_not_known(text: str, ms: int | None) -> None:
    assert interval_ms(text) == ms


def told(properties: dict[str, str], age_ms: int | None) -> Headroom:
    where = Where.of("/lake/t", "t")
    found = of_delta(properties, where, None if age_ms is None else NOW_MS - age_ms, UNREAD)
    assert found is not None
    return found


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200 * 24))
def test_a_delta_tables_shorter_retention_counts(files_days: int, log_days: int, age_h: int) -> None:
    properties = {FILES: f"interval {files_days} days", LOG: f"interval {log_days} days"}
    left_s = told(properties, age_h * HOUR_MS).left_s(NOW_MS)
    assert left_s == max(0, min(files_days, log_days) * 24 - age_h) * 3600
    kept = told({**properties, CLEANUP: "false"}, age_h * HOUR_MS)
    assert kept.left_s(NOW_MS) == max(0, files_days * 24 - age_h) * 3600


def test_the_defaults_of_a_delta_table_and_a_retention_that_is_not_known() -> None:
    assert told({}, None).left_s(NOW_MS) == 7 * 86_400
    assert (
        told({FILES: "interval 1 month"}, None).beside
        == "delta.deletedFileRetentionDuration is 'interval 1 month'"
    )
    both = told({FILES: "interval 1 month", LOG: "interval 1 month"}, None)
    assert (both.kept, both.of) == (Kept.UNKNOWN, "/lake/t")


ages_h = st.lists(st.integers(0, 400), max_size=5)


@given(ages_h, st.integers(0, 400), st.integers(0, 300), st.integers(1, 6), st.booleans())
def test_an_iceberg_snapshot_and_the_one_before_it_are_kept_for_the_age_or_as_the_newest(
    pending_h: list[int], more_h: int, keep_h: int, least: int, tagged: bool
) -> None:
    pending = tuple(sorted(NOW_MS - h * HOUR_MS for h in pending_h))
    begun_ms = (pending[0] if pending else NOW_MS) - more_h * HOUR_MS
    expiry = Expiry.of({AGE: str(keep_h * HOUR_MS), LEAST: str(least)})
    found = of_iceberg(expiry, begun_ms, pending, tagged, "t", Hint(), UNREAD)
    if pending and len(pending) < least:
        assert found.kept is Kept.UNBOUNDED
        return
    oldest_ms = NOW_MS if not pending else pending[0] if tagged else begun_ms
    assert found.left_s(NOW_MS) == max(0, oldest_ms + keep_h * HOUR_MS - NOW_MS) / 1000


def test_a_branch_has_limits_of_its_own_and_a_table_may_forbid_expiry() -> None:
    assert Expiry.of({}) == Expiry(5 * DAY_MS, 1)
    assert Expiry.of({AGE: "5", LEAST: "6"}, 7, 8) == Expiry(7, 8)
    never = of_iceberg(Expiry.of({COLLECTS: "false"}), 0, (1,), False, "t", Hint(), UNREAD)
    assert never.kept is Kept.UNBOUNDED


def asked(upstream: Source, position: Position, now_ms: int) -> Headroom:
    view = upstream.observe(position, True)
    oldest_ms = next((one.ms for one in view.pending), None)
    assert upstream.extras.headroom is not None
    found = upstream.extras.headroom(Unread(position, True, now_ms, oldest_ms))
    assert found is not None
    return found


def test_a_delta_table_tells_a_later_process_too_and_the_hint_is_typed(tmp_path: Path) -> None:
    feed = {"delta.enableChangeDataFeed": "true", FILES: "interval 2 days"}
    write_deltalake(str(tmp_path / "t"), ROW, configuration=feed)
    options = delta.options.model_validate({"type": "delta", "table": str(tmp_path / "t")})
    pin = delta.open(options, [TableSpec("t", ("id",))]).pin()
    upstream = delta.open(options, [TableSpec("t", ("id",))])
    upstream.restore(pin)
    later_ms = (pin.position_ms or 0) + DAY_MS
    assert asked(upstream, pin.position, later_ms).left_s(later_ms) == 2 * 86_400
    write_deltalake(str(tmp_path / "t"), ROW, mode="append")
    found = asked(upstream, pin.position, later_ms)
    assert 86_300 < (found.left_s(later_ms) or 0) < 86_500
    assert found.by == "VACUUM (delta.deletedFileRetentionDuration, 2 d)"
    (statement,) = hint_words.statements(str(found.hint))
    name, value = re.findall(r"\((\S+) = '(.*)'\)", statement)[0]
    DeltaTable(str(tmp_path / "t")).alter.set_table_properties({name: value})
    assert (asked(upstream, pin.position, later_ms).left_s(later_ms) or 0) > 28 * 86_400


def test_an_iceberg_table_tells_by_the_snapshots_that_are_not_read(tmp_path: Path) -> None:
    table = Folder(tmp_path / "t").created(ROW.schema)
    table.append(ROW)
    options = iceberg.options.model_validate({"type": "iceberg", "table": str(tmp_path / "t"), "tag": False})
    upstream = iceberg.open(options, [TableSpec("t", ("id",))])
    pin = upstream.pin()
    upstream.restore(pin)
    later_ms = (pin.position_ms or 0) + DAY_MS
    assert asked(upstream, pin.position, later_ms).left_s(later_ms) == 5 * 86_400
    table.append(ROW)
    found = asked(upstream, pin.position, later_ms)
    assert (found.left_s(later_ms), found.by) == (
        4 * 86_400,
        "expire_snapshots (history.expire.max-snapshot-age-ms, 5 d)",
    )
    (statement,) = hint_words.statements(str(found.hint))
    name, value = re.findall(r"\('(\S+)' = '(.*)'\)", statement)[0]
    with table.transaction() as change:
        change.set_properties({name: value})
    assert asked(upstream, pin.position, later_ms).left_s(later_ms) == 29 * 86_400
