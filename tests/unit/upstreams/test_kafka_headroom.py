"""How long topics keep what is not read, against a log whose records and their times are all known."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.kafka.admin import Place
from backfill_cli.model.headroom import Headroom, Kept, Unread
from backfill_cli.model.position import START
from backfill_cli.upstreams.kafka.headroom import HALVED, Stand, headroom
from backfill_cli.upstreams.kafka.headroom import Kept as Retention

NOW_MS = 1_800_000_000_000
UNREAD = Unread(START, False, NOW_MS)
HOUR_MS = 3_600_000


class Log:
    """Partitions of one topic: the times of their records. begin: the offset of each one's first."""

    def __init__(self, *partitions: list[int], begin: int = 0) -> None:
        self.times = {("t", p): sorted(times) for p, times in enumerate(partitions)}
        self.begin, self.asked = begin, 0

    def at_time(self, places: Collection[Place], ms: int) -> Mapping[Place, int]:
        self.asked += 1
        return {one: self.begin + sum(at < ms for at in self.times[one]) for one in places}

    def stand(self, *reached: int) -> Stand:
        ends = {one: self.begin + len(times) for one, times in self.times.items()}
        return Stand(dict.fromkeys(ends, self.begin), ends, {("t", p): at for p, at in enumerate(reached)})

    def headroom(self, retention: Retention, *reached: int) -> Headroom:
        return headroom(retention, self.stand(*reached), self.at_time, UNREAD)


ages_ms = st.lists(st.integers(0, 3 * HOUR_MS), max_size=8)


@given(st.lists(st.tuples(ages_ms, st.integers(0, 8)), min_size=1, max_size=4), st.integers(1, 3 * HOUR_MS))
def test_by_age_it_is_what_the_oldest_unread_record_has_left_and_never_more(
    partitions: list[tuple[list[int], int]], keep_ms: int
) -> None:
    log = Log(*([NOW_MS - age for age in ages] for ages, _ in partitions))
    reached = [min(at, len(ages)) for ages, at in partitions]
    found = log.headroom(Retention("t", keep_ms=keep_ms), *reached)
    unread = [at for times, begun in zip(log.times.values(), reached, strict=True) for at in times[begun:]]
    left_ms = min((max(0, at + keep_ms - NOW_MS) for at in unread), default=keep_ms)
    told_ms = (found.left_s(NOW_MS) or 0) * 1000
    assert left_ms - keep_ms / 2**HALVED - 1 <= told_ms <= left_ms
    assert log.asked <= HALVED


def test_it_names_the_partition_whose_records_go_first() -> None:
    log = Log([NOW_MS - 60_000] * 3, [NOW_MS - HOUR_MS] * 2, [NOW_MS - 2 * HOUR_MS] * 5)
    found = log.headroom(Retention("t", keep_ms=3 * HOUR_MS), 0, 0, 5)
    assert (found.of, found.by) == ("partition 1 of topic 't'", "retention.ms (3 h)")
    assert str(found.hint) == "raise retention.ms of topic 't'"


def test_by_size_it_is_the_time_in_which_the_logs_beginning_reaches_the_job() -> None:
    lately = [NOW_MS - 60_000] * 300  # 1 record/s in the last 300 s
    log = Log(lately, begin=1000)
    found = log.headroom(Retention("t", keep_bytes=1 << 20), 1060)
    assert (found.left_s(NOW_MS), found.by) == (60.0, "retention.bytes (1.0 MB)")
    assert log.headroom(Retention("t", keep_bytes=1 << 20), 1000).left_s(NOW_MS) == 0
    assert log.headroom(Retention("t", keep_bytes=1 << 20), 990).left_s(NOW_MS) == 0


def test_a_log_that_has_lost_nothing_yet_does_not_tell_how_far_it_is_from_its_size() -> None:
    log, retention = Log([NOW_MS] * 3), Retention("t", keep_bytes=100)
    assert log.headroom(retention, 1).kept is Kept.UNKNOWN
    both = log.headroom(Retention("t", keep_ms=HOUR_MS, keep_bytes=100), 3)
    assert (both.left_s(NOW_MS), both.beside) == (
        3600.0,
        "the cluster does not tell how far it is from retention.bytes (100 B)",
    )


@pytest.mark.parametrize(
    ("settings", "appends", "kept", "said"),
    [
        ({"retention.ms": "-1", "retention.bytes": "-1"}, True, Kept.UNBOUNDED, "has no retention"),
        ({"cleanup.policy": "compact"}, True, Kept.UNKNOWN, "is compacted"),
        (
            {"cleanup.policy": "compact", "delete.retention.ms": "1000"},
            False,
            Kept.UNTIL,
            "compaction, of deletes",
        ),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1000"}, True, Kept.UNTIL, "retention.ms (1 s)"),
        ({"cleanup.policy": "compact", "retention.ms": "1000"}, True, Kept.UNKNOWN, "is compacted"),
        ({"retention.ms": "1000", "retention.bytes": "-1"}, False, Kept.UNTIL, "retention.ms (1 s)"),
        ({"retention.ms": str(2**63 - 1)}, False, Kept.UNBOUNDED, "has no retention"),
    ],
)
def test_what_a_topics_settings_mean(settings: dict[str, str], appends: bool, kept: Kept, said: str) -> None:
    found = Log([NOW_MS]).headroom(Retention.of("t", settings, appends), 0)
    assert found.kept is kept
    assert said in found.by
