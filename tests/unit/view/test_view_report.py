"""The report: whole, without network or script, of what the ledger has; nothing from outside becomes markup."""

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st
from view_builders import GROUPS, ledger, progress, row

from backfill_cli.errors import UsageError
from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress, Totals, Written
from backfill_cli.model.job import Phase
from backfill_cli.model.limit import Limit
from backfill_cli.view.model import job_view
from backfill_cli.view.report import Reported, binned, curves, phase_spans, report

NOW_MS = 1_763_700_000_000
TOTALS = Totals(7, 84_200, 1_300, 85_000)


def epochs(count: int) -> list[EpochRecord]:
    """A snapshot, a backlog, then the live log; a pause and a resume on the way."""
    made = []
    for n in range(count):
        phase = (Phase.SNAPSHOT, Phase.LOG_STORE, Phase.UPSTREAM)[min(2, n * 4 // count)]
        at_ms = 1_763_692_800_000 + n * 1_000
        verbs = {count // 3: "pause", count // 3 + 10: "resume"}.get(n, "")
        made.append(EpochRecord(at_ms, at_ms - 1_000, phase, at_ms, 500, 40, 540, 1, 300, 90, n * 10, 3, verbs))
    return made


def page(records: list[EpochRecord], config: str = "{}", name: str = "orders", **changes: object) -> str:
    view = job_view(row(name=name, **changes), GROUPS, ledger([5]))
    return report(Reported(view, TOTALS, records, config, NOW_MS))


class Outline(HTMLParser):
    """What a browser would make of it: every element opened and closed, what it refers to, its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.refers: list[str] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.refers += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.said += data


def outline(text: str) -> Outline:
    read = Outline()
    read.feed(text)
    read.close()
    return read


def test_a_page_has_its_numbers_curves_splits_epochs_and_config_and_fetches_nothing() -> None:
    text = page(epochs(100), '{"job": {"name": "orders"}, "sink": {"dsn": "${env:DSN}"}}')
    read = outline(text)
    assert read.tags.count("svg") == 1
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert all(one.startswith("#") for one in read.refers)
    assert not re.search(r"url\((?!#)|@import", text)
    for said in ("42.1%, 84,200 of 200,000 rows", "splits 1–4", "${env:DSN}", "pause", "resume", "Lag", "85,000"):
        assert said in read.said
    assert len(re.findall("<tr>", text)) == 1 + 30


def test_after_a_rebuild_a_report_says_what_is_not_counted() -> None:
    view = job_view(row())
    told = report(Reported(view, Totals(1, 0, 7_800, 7_800), epochs(2), "{}", NOW_MS))
    assert "<dt>catalog rebuilt</dt>" in told
    assert "changes, rows written and epochs of before the rebuild" in told
    whole = report(Reported(view, Totals(1, view.rows_read, 7_800, 7_800), epochs(2), "{}", NOW_MS))
    assert "rebuil" not in whole
    assert "<dt>created</dt>" in whole


def test_a_report_of_ten_thousand_epochs_is_small() -> None:
    assert len(page(epochs(10_000)).encode()) < 2_000_000


@pytest.mark.parametrize("progressed", [None, progress(partitions=(PartitionProgress("0", "live", 9, 5, 0),))])
def test_a_job_that_did_nothing_yet_and_one_of_partitions_have_a_report(progressed: object) -> None:
    assert "Nothing has been committed yet" in page([], progress=progressed)


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_nothing_from_outside_becomes_markup(text: str) -> None:
    strange = f"<script>{text}"
    config = '{"a": "</pre><img src=x>"}'
    read = outline(page([], config, name=strange, why=Limit(strange)))
    assert not {"script", "img"} & set(read.tags)


EPOCH = st.tuples(st.integers(0, 10**7), st.integers(0, 1_000), st.none() | st.integers(0, 10**6))
"""When it was committed, rows, lag."""


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(0, 1_000), st.none() | st.integers(0, 10**6)), min_size=1
    ),
    st.integers(1, 50),
)
def test_binning_loses_no_row_and_no_peak(told: list[tuple[int, int, int | None]], points: int) -> None:
    records = [EpochRecord(at, at, Phase.UPSTREAM, at, n, 2 * n, 0, 0, n, 3, lag) for at, n, lag in told]
    bins = binned(records, points)
    assert 1 <= len(bins) <= points
    span_s = (bins[0].end - bins[0].begin).total_seconds()
    assert sum(one.rows_per_s for one in bins) * span_s == pytest.approx(sum(one[1] for one in told))
    assert sum(one.changes_per_s for one in bins) * span_s == pytest.approx(2 * sum(one[1] for one in told))
    assert all(one.end == after.begin for one, after in pairwise(bins))
    lags = [one.lag_s for one in bins if one.lag_s is not None]
    known = [lag for _, _, lag in told if lag is not None]
    assert max(lags, default=None) == (max(known) / 1000 if known else None)
    assert max(one.stage_s for one in bins) == max(one[1] for one in told) / 1000


def test_a_job_that_became_live_at_an_idle_barrier_was_not_catching_up_since() -> None:
    """Its last epochs were of the log store; since then it is live, and nothing changed for ten minutes."""
    caught_ms = NOW_MS - 600_000
    records = [EpochRecord(caught_ms - n, 0, Phase.LOG_STORE, caught_ms - n, 0, 1, 1) for n in (2_000, 1_000)]
    ends = {Phase.SNAPSHOT: caught_ms - 5_000, Phase.LOG_STORE: caught_ms}
    log, live = phase_spans(records, Phase.UPSTREAM, ends, NOW_MS)
    assert (log.phase, log.end_ms - log.begin_ms, log.end_ms) == (Phase.LOG_STORE, 2_000, caught_ms)
    assert (live.phase, live.end_ms) == (Phase.UPSTREAM, NOW_MS)
    assert binned(records, until_ms=NOW_MS)[-1].end.timestamp() * 1000 >= NOW_MS
    later = EpochRecord(NOW_MS, 0, Phase.UPSTREAM, NOW_MS, 0, 1, 1)
    assert phase_spans([*records, later], Phase.UPSTREAM, ends, NOW_MS)[:2] == (log, live)


PHASES = st.lists(st.tuples(st.sampled_from(Phase), st.integers(0, 1_000)), min_size=1, max_size=9)


@given(PHASES, st.sampled_from(Phase), st.dictionaries(st.sampled_from(Phase), st.integers(0, 1_000)))
def test_phases_follow_each_other_without_a_gap(
    told: list[tuple[Phase, int]], now: Phase, ends: dict[Phase, int]
) -> None:
    records = [EpochRecord(at, at, phase, at) for phase, at in told]
    spans = phase_spans(records, now, ends, 1_000)
    assert all(one.end_ms == after.begin_ms for one, after in pairwise(spans))
    assert (spans[0].begin_ms, spans[-1].end_ms, spans[-1].phase) == (told[0][1], 1_000, now)
    assert all(one.begin_ms <= one.end_ms for one in spans)


def test_two_jobs_are_side_by_side_each_whole() -> None:
    first, other = (job_view(row(name=name), GROUPS, ledger([5])) for name in ("first", "other"))
    told = Reported(first, TOTALS, epochs(20), "{}", NOW_MS)
    text = report(told, Reported(other, TOTALS, epochs(9), '{"of": "other"}', NOW_MS))
    assert '<main class="of-2">' in text
    assert text.count("<section>") == text.count("</section>") == text.count("<figure>") == 2
    assert text.index("<h1>other") > text.index("</section>")
    assert "&quot;of&quot;: &quot;other&quot;" in text
    assert '<main class="of-1">' in report(told)


def test_a_report_tells_what_was_written_and_what_is_quarantined_as_status_does() -> None:
    records = [replace(one, rows_inserted=0, rows_upserted=30, rows_deleted=7) for one in epochs(20)]
    records[0] = replace(records[0], rows_inserted=None, rows_upserted=None, rows_deleted=None)
    live = progress(
        phase=Phase.UPSTREAM,
        quarantined={"_backfill_quarantine_orders": 3},
        changes_per_s=40.0,
        written_per_s=Written(0.0, 30.0, 7.0),
    )
    read = outline(page(records, progress=live))
    for said in (
        "Written",
        "upserted",
        "deleted",
        "30 upserted, 7.0 deleted",
        "3 rows in _backfill_quarantine_orders",
    ):
        assert said in read.said
    bins = binned(records, 7)
    span_s = (bins[0].end - bins[0].begin).total_seconds()
    assert sum(one.upserted_per_s for one in bins) * span_s == pytest.approx(19 * 30)
    assert sum(one.deleted_per_s for one in bins) * span_s == pytest.approx(19 * 7)
    assert {one.inserted_per_s for one in bins} == {0.0}


def test_a_report_needs_the_package_that_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(UsageError, match="a report needs matplotlib") as refused:
            curves(ledger([1, 2]), (), 0)
    with typed(refused.value) as hint:
        hint.says("pip install 'backfill-cli[report]'")
        assert "<svg" in curves(ledger([1, 2]), (), 0)
