"""The report: whole, without network or script, of what the ledger has; nothing from outside becomes markup."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from view_builders import GROUPS, ledger, progress, row

from backfill_cli.catalog import Run, SplitGroup, Taken
from backfill_cli.catalog.lease import Lease
from backfill_cli.model.aside import Aside
from backfill_cli.model.checkpoint import EpochRecord, PartitionProgress, Totals, Written
from backfill_cli.model.job import Command, Control, JobState, Phase, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.units import spell_clock, spell_moment
from backfill_cli.view.model import VerifiedView, job_view
from backfill_cli.view.report import FOLDED, LISTED, Reported, life_of, report, standing

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


def told(
    records: Sequence[EpochRecord] = (),
    config: str = "",
    taken: Sequence[Taken] = (),
    runs: Sequence[Run] = (),
    groups: Sequence[SplitGroup] = GROUPS,
    totals: Totals = TOTALS,
    **changes: object,
) -> Reported:
    view = job_view(row(**changes), groups, ledger([5]))
    return Reported(view, replace(totals, epochs=len(records)), records, taken, runs, config, NOW_MS)


def page(records: Sequence[EpochRecord], config: str = "", **changes: object) -> str:
    return report(told(records, config, **changes))


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
    pause = Taken(Command(1, Verb.PAUSE, "me@box", 0), 1_763_692_833_000)
    text = page(epochs(100), '[job]\nname = "orders"\n[sink]\ndsn = "${env:DSN}"', taken=[pause])
    read = outline(text)
    assert read.tags.count("figure") == 5
    assert read.tags.count("h1") == 1
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert all(one.startswith("#") for one in read.refers)
    assert not re.search(r"url\((?!#)|@import", text)
    for said in ("42.1%, 84,200 of 200,000 rows", "splits 1–4", "${env:DSN}", "pause", "me@box", "Lag", "85,000"):
        assert said in read.said
    assert len(re.findall("<tr><td>", text)) == 3 + 1 + 100  # phases, commands, commits
    assert "<summary>50 earlier</summary>" in text


def test_after_a_rebuild_a_report_says_what_is_not_counted() -> None:
    rebuilt = report(told(epochs(2), totals=Totals(1, 0, 7_800, 7_800)))
    assert "<dt>catalog rebuilt</dt>" in rebuilt
    assert "changes, rows written and commits of before the rebuild" in rebuilt
    whole = page(epochs(2))
    assert "rebuil" not in whole
    assert "<dt>created</dt>" in whole


def test_a_report_of_ten_thousand_commits_and_a_thousand_commands_is_small() -> None:
    throttle = (Command(n, Verb.THROTTLE, "somebody@somewhere", n, n * 1_000.0) for n in range(1_000))
    taken = [Taken(one, 1_763_692_800_000 + one.id * 9_000) for one in throttle]
    begun = range(1_763_692_800_000, 1_763_702_800_000, 10_001)
    runs = [Run(one, one + 6_000, died=one % 2 == 0) for one in begun]
    text = page(epochs(10_000), taken=taken, runs=runs)
    assert len(text.encode()) < 1_000_000
    assert text.count("<tr><td>") == 3 + 2 * (LISTED + FOLDED)
    assert "9,000 lines before these: <code>backfill history orders --last 10000</code>" in text


def test_parts_that_a_report_does_not_show_are_counted() -> None:
    groups = [SplitGroup(f"t{n}", 1, 0, 0, None, 0.5) for n in range(LISTED + FOLDED + 2)]
    text = page([], groups=groups)
    assert text.count('class="part"') == LISTED + FOLDED
    assert f"<summary>{FOLDED} more</summary>" in text
    assert "<p>2 parts after these</p>" in text
    whole = page([], groups=groups[: LISTED + 1])
    assert "<summary>1 more</summary>" in whole
    assert "after these" not in whole


@pytest.mark.parametrize("progressed", [None, progress(partitions=(PartitionProgress("0", "live", 9, 5, 0),))])
def test_a_job_that_did_nothing_yet_and_one_of_partitions_have_a_report(progressed: object) -> None:
    text = page([], progress=progressed)
    assert "Nothing has been committed yet" in text
    assert "creation to last commit" not in text


STRANGE = st.sampled_from(["\u202egnp.elif\u202c", "السعر", "📦" * 20, "n" * 200, "a b\nc", "</title>"])


@given(STRANGE | st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_nothing_from_outside_becomes_markup(text: str) -> None:
    strange = f"<script>{text}"
    config = f"a = '</pre><img src=x>{text}'"
    groups = (SplitGroup(strange, 1, 0, 0, None, 0.5),)
    quarantined = progress(quarantined={strange: 3})
    taken = [Taken(Command(1, Verb.PAUSE, strange, 0), NOW_MS)]
    made = page(
        epochs(3), config, name=strange, why=Limit(strange), groups=groups, progress=quarantined, taken=taken
    )
    read = outline(made)
    assert not {"script", "img"} & set(read.tags)
    assert read.tags.count("title") == made.count("<title>") == made.count("</title>")
    assert read.said.count(text) >= 4


def test_the_first_line_says_where_a_job_stands_and_what_to_type() -> None:
    created = 1_763_692_700_000
    caught_up = {"caught_up_ms": created + 150_000, "phase": Phase.UPSTREAM}
    live = progress(phase=Phase.UPSTREAM, pending_epochs=0, looked_ms=NOW_MS)
    ended = [Run(created, created + 200_000, died=False)]
    stop = [Taken(Command(1, Verb.STOP, "me@box", 0), created + 190_000)]
    paused = Control(paused_by="me@box", paused_since_ms=NOW_MS - 5_000)

    def first(**changes: object) -> str:
        return re.sub(r"([0-9-]{10} )?\d\d:\d\d:\d\d", "TIME", standing(told(**changes)))

    assert first() == "copying, 42.1%"
    assert first(progress=replace(live, pending_epochs=3)) == "catching up, lag 1.2 s"
    assert first(progress=live, **caught_up) == "caught up after 2 m 30 s; up to date"
    out = Aside("b", "{}", "{}", "[]", 1, 2, "a value that the sink cannot take, whatever else is done with it")
    apart = first(progress=live, aside=(out,), **caught_up)
    assert apart == "caught up after 2 m 30 s; up to date; without b, which is set aside"
    back = first(progress=live, aside=(replace(out, refill=1),), **caught_up)
    assert back == "caught up after 2 m 30 s; b is being put back"
    assert '<div class="long"><dt>set aside</dt>' in page([], aside=(out,)), "it has a line of its own"
    assert first(state=JobState.DONE, live=False, progress=live, **caught_up) == "caught up after 2 m 30 s"
    assert first(state=JobState.PAUSED, control=paused) == "paused since TIME by me@box"
    stopped = {"state": JobState.STOPPED, "live": False, "lease": Lease(3)}
    assert first(taken=stop, runs=ended, **stopped) == "stopped by me@box at TIME"
    assert first(runs=ended, **stopped, **caught_up) == "stopped at TIME; caught up after 2 m 30 s"
    later = Run(created + 300_000, created + 400_000, died=False)
    assert first(taken=stop, runs=[*ended, later], **stopped) == "stopped at TIME"
    died = standing(told(taken=stop, runs=[Run(created, None, died=False)], **stopped))
    assert died == f"stopped by me@box at {spell_clock(created + 190_000, NOW_MS)}"
    before = standing(told(taken=stop, runs=[Run(0, 9, died=False), Run(created, None, died=False)], **stopped))
    assert before == died
    assert first(live=False) == "the runner died, last seen at TIME"
    assert first(state=JobState.FAILED, live=False, why=Limit("no space")) == "failed: no space"
    page_of = {"paused": page([], state=JobState.PAUSED, control=paused), "dead": page([], live=False)}
    assert all("<code>backfill resume orders</code>" in text for text in page_of.values())


def test_the_lag_of_a_job_that_is_done_ends_with_what_it_has_and_a_verify_with_its_time() -> None:
    slow = [EpochRecord(NOW_MS - 9_000, 0, Phase.LOG_STORE, NOW_MS - 8_000, changes_read=5, lag_ms=120_000)]
    runs = [Run(NOW_MS - 60_000, NOW_MS - 5_000, died=False)]
    at_end = progress(phase=Phase.UPSTREAM, lag_ms=0, looked_ms=NOW_MS - 6_000, oldest_ms=None)
    done = told(slow, runs=runs, state=JobState.DONE, live=False, progress=at_end)
    assert life_of(done).lags[-1] == (NOW_MS - 5_000, 0.0)
    assert life_of(told(slow, runs=runs, state=JobState.STOPPED, live=False)).lags[-1][1] == 120.0
    equal = VerifiedView(True, 7, NOW_MS - 800, 0.8, None, ["orders"], 0, 0, 0)
    saved = report(replace(done, view=replace(done.view, verified=equal)))
    assert f"equal at commit 7, {spell_moment(NOW_MS - 800)}" in saved


def test_phases_tell_how_long_they_were_paused_and_without_a_runner() -> None:
    begin = 1_763_692_800_000
    there = [begin + n * 1_000 for n in (*range(41), *range(55, 100))]
    records = [EpochRecord(at_ms, 0, Phase.SNAPSHOT, at_ms) for at_ms in there]
    taken = [
        Taken(Command(n, verb, "me", 0), begin + at)
        for n, verb, at in ((1, Verb.PAUSE, 10_000), (2, Verb.RESUME, 30_000))
    ]
    runs = [Run(begin, begin + 33_000, died=True), Run(begin + 55_000, begin + 99_000, died=False)]
    text = page(records, taken=taken, runs=runs, created_ms=begin, live=False, state=JobState.STOPPED)
    assert re.search("<td>1 m 39 s</td><td>20 s</td><td>15 s</td>", text)
    assert outline(text).said.count("no runner: it died") >= 1
    assert "runner died" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_in_dark(scheme: str) -> None:
    """WCAG AA: 4.5 to 1 for text, 3 to 1 for lines of a chart."""
    css = (files("backfill_cli.view") / "report.html").read_text("utf-8")
    light, dark = (dict(re.findall(r"--([a-z-]+): #([0-9a-f]{6});", part)) for part in css.split("@media")[:2])
    assert light.keys() == dark.keys()
    colours = {"light": light, "dark": dark}[scheme]

    def luminance(colour: str) -> float:
        parts = [int(colours[colour][at : at + 2], 16) / 255 for at in (0, 2, 4)]
        linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((luminance(one), luminance(other)))
        return (high + 0.05) / (low + 0.05)

    grounds = ("paper", "code", "good", "bad", "warn", "plain", "snapshot", "log-store", "upstream", "held")
    weak = {f"ink on {ground}": contrast("ink", ground) for ground in grounds if contrast("ink", ground) < 4.5}
    weak |= {"quiet": contrast("quiet", "paper")} if contrast("quiet", "paper") < 4.5 else {}
    lines = [(one, ground) for one in ("one", "two", "three") for ground in ("paper", "snapshot", "upstream")]
    weak |= {f"{one} on {ground}": contrast(one, ground) for one, ground in lines if contrast(one, ground) < 3}
    assert weak == {}


def test_two_jobs_are_side_by_side_each_whole() -> None:
    first, other = told(epochs(20), name="first"), told(epochs(9), "of = 'other'", name="other")
    text = report(first, other)
    assert '<main class="of-2">' in text
    assert text.count("<section>") == text.count("</section>") == text.count("<h1>") == 2
    assert text.index("<bdi>other</bdi>") > text.index("</section>")
    assert "of = &#x27;other&#x27;" in text
    assert '<main class="of-1">' in report(first)


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
        "Rows written per second",
        "upserted",
        "deleted",
        "30 rows/s upserted, 7 rows/s deleted",
        "3 rows in _backfill_quarantine_orders",
    ):
        assert said in read.said
