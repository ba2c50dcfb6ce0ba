"""A job's life as charts: its phases and events, then rates, lag and times of its commits below each other."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.units import spell_clock, spell_count, spell_duration
from backfill_cli.view.chart import (
    Axis,
    Frame,
    Label,
    Tick,
    circle,
    count_ticks,
    cross,
    dots,
    duration_ticks,
    height_of,
    labels,
    labels_svg,
    line,
    stairs,
    svg,
    times_svg,
    wide,
)
from backfill_cli.view.model import spell_phase
from backfill_cli.view.past import DEAD, PAUSED, STOPPED, Bin, Event, Span, binned, thinned


@dataclass(frozen=True, slots=True)
class Life:
    """What is drawn. events: between `begin_ms` and `until_ms`. lags: corners of a line, (ms, seconds).

    now_ms: when the page is made.
    """

    begin_ms: int
    until_ms: int
    phases: Sequence[Span]
    held_up: Sequence[Span]
    events: Sequence[Event]
    records: Sequence[EpochRecord]
    lags: Sequence[tuple[int, float]]
    now_ms: int


@dataclass(frozen=True, slots=True)
class Size:
    """A picture's width in pixels; the page shows the one that fits. points: on its time axis at most."""

    name: str
    width: int
    points: int


SIZES = (Size("broad", 960, 400), Size("middle", 620, 250), Size("narrow", 350, 130))
HIGH = 120
RIGHT = 10
STRIP = 22
LEAST = 2
"""Pixels from which on a bar says by itself what it is."""


@dataclass(frozen=True, slots=True)
class Series:
    """One kind of value. style: a class of the page; each has a colour and a stroke or mark of its own."""

    style: str
    name: str
    of: Callable[[Bin], float]


@dataclass(frozen=True, slots=True)
class Curves:
    """A chart; without series, that of the lag. ticks: of its axis, up to a value. spell: its highest value."""

    title: str
    series: Sequence[Series]
    ticks: Callable[[float], list[Tick]]
    spell: Callable[[float], str]
    draw: "Callable[[Curves, Drawn, Axis], str]"


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a chart is made of, at one size."""

    frame: Frame
    bins: Sequence[Bin]
    lags: Sequence[tuple[int, float]]

    def top(self, chart: Curves) -> float:
        if not chart.series:
            return max((lag for _, lag in self.lags), default=0.0)
        return max((one.of(bin) for bin in self.bins for one in chart.series), default=0.0)


def _stairs(chart: Curves, drawn: Drawn, axis: Axis) -> str:
    end_ms = drawn.bins[-1].end_ms
    told = ((one, [(bin.begin_ms, one.of(bin)) for bin in drawn.bins]) for one in chart.series)
    return "".join(
        f'<path class="{one.style}" d="{stairs(drawn.frame, axis, steps, end_ms)}"/>'
        for one, steps in told
        if any(value for _, value in steps)
    )


def _marks(chart: Curves, drawn: Drawn, axis: Axis) -> str:
    """No lines, as values in between are not known."""
    busy = [bin for bin in drawn.bins if bin.stage_s or bin.commit_s]
    told = ((one, [(bin.end_ms, one.of(bin)) for bin in busy]) for one in chart.series)
    return "".join(
        f'<path class="{one.style}" d="{dots(drawn.frame, axis, points, MARKS[one.style])}"/>'
        for one, points in told
    )


def _lag(chart: Curves, drawn: Drawn, axis: Axis) -> str:
    return f'<path class="one" d="{line(drawn.frame, axis, drawn.lags)}"/>' if drawn.lags else ""


MARKS = {"circles": circle, "crosses": cross}
PER_S = "{:,.0f}/s".format
CHARTS = (
    Curves(
        "Read per second",
        (
            Series("one", "rows", lambda bin: bin.rows_per_s),
            Series("two", "changes", lambda bin: bin.changes_per_s),
        ),
        count_ticks,
        PER_S,
        _stairs,
    ),
    Curves(
        "Rows written per second",
        (
            Series("one", "inserted", lambda bin: bin.inserted_per_s),
            Series("two", "upserted", lambda bin: bin.upserted_per_s),
            Series("three", "deleted", lambda bin: bin.deleted_per_s),
        ),
        count_ticks,
        PER_S,
        _stairs,
    ),
    Curves("Lag", (), duration_ticks, spell_duration, _lag),
    Curves(
        "Longest staging and sink commit",
        (
            Series("circles", "staging", lambda bin: bin.stage_s),
            Series("crosses", "sink", lambda bin: bin.commit_s),
        ),
        duration_ticks,
        spell_duration,
        _marks,
    ),
)


def figures(life: Life) -> str:
    """The charts as HTML, each in all widths."""
    sizes = [(size, _drawn(life, size)) for size in SIZES]
    strip = "".join(_strip(life, size, drawn.frame) for size, drawn in sizes)
    charts = (
        f"<figure><figcaption>{chart.title}{_key(chart)}</figcaption>"
        f"{''.join(_chart(life, chart, size, drawn) for size, drawn in sizes)}</figure>"
        for chart in CHARTS
    )
    area = '<rect class="area {}" x="1" y="1" width="24" height="8"/>'.format
    caption = "".join(_sample(what, area(STYLE[what])) for what in dict.fromkeys(one.what for one in life.held_up))
    return "\n".join([f"<figure><figcaption>Phases and events{caption}</figcaption>{strip}</figure>", *charts])


def _key(chart: Curves) -> str:
    return "".join(
        _sample(
            one.name,
            f'<path class="{one.style}" d="{MARKS[one.style](13, 5) if one.style in MARKS else "M1 5H25"}"/>',
        )
        for one in chart.series
    )


def _sample(name: str, drawing: str) -> str:
    """What a line or an area of a chart looks like, and what it is."""
    return (
        f'<span class="key"><svg width="26" height="10" viewBox="0 0 26 10" aria-hidden="true">{drawing}</svg>'
        f"{name}</span>"
    )


def _drawn(life: Life, size: Size) -> Drawn:
    """The left edge leaves room for the longest value of any chart, so that all have the same times below them."""
    bins = binned(life.records, size.points, life.begin_ms, life.until_ms)
    end_ms = bins[-1].end_ms if bins else life.until_ms
    lags = thinned(life.lags, life.begin_ms, end_ms, size.points)
    bare = Drawn(Frame(life.begin_ms, end_ms, 0, 0), bins, lags)
    longest = max(wide(tick.label) for chart in CHARTS for tick in chart.ticks(bare.top(chart)))
    return Drawn(Frame(life.begin_ms, end_ms, longest + 8, size.width - RIGHT), bins, lags)


def _placed(life: Life, frame: Frame) -> tuple[Label, ...]:
    return labels([(frame.x(one.at_ms), one.what) for one in life.events], frame.left, frame.right)


def _strip(life: Life, size: Size, frame: Frame) -> str:
    """The events with their labels, above the phases; pauses and times without a runner in a row of their own."""
    placed = _placed(life, frame)
    top = height_of(placed) + 3
    held = top + STRIP
    bottom = held + (STRIP if life.held_up else 0)
    broad = [one for one in life.held_up if frame.x(one.end_ms) - frame.x(one.begin_ms) >= LEAST]
    content = "".join(_span(one, frame, top, life.now_ms) for one in life.phases)
    content += _shades(life.held_up, frame, held + 1, STRIP - 2, "")
    content += "".join(_span(one, frame, held, life.now_ms) for one in broad)
    content += labels_svg(placed, bottom) + times_svg(frame, bottom)
    about = "Phases and events: " + "; ".join(
        _told(one, life.now_ms) for one in (*life.phases, *life.held_up)[:20]
    )
    return svg(size.width, bottom + 22, about, content, size.name)


def _told(span: Span, now_ms: int) -> str:
    begin, end = spell_clock(span.begin_ms, now_ms), spell_clock(span.end_ms, now_ms)
    return f"{spell_phase(span.what)}, {begin} to {end}, {spell_duration((span.end_ms - span.begin_ms) / 1000)}"


STYLE = {PAUSED: "paused", STOPPED: "none", DEAD: "died"}


SHORT = {DEAD: STOPPED}


def _span(span: Span, frame: Frame, top: float, now_ms: int) -> str:
    """A bar, named by the longest of its names that fits."""
    x, end = frame.x(span.begin_ms), frame.x(span.end_ms)
    if end <= x:
        return ""
    fits = next(
        (one for one in (spell_phase(span.what), SHORT.get(span.what, span.what)) if wide(one) + 8 <= end - x), ""
    )
    text = f'<text class="label" x="{x + 4:.1f}" y="{top + 15:.0f}">{html.escape(fits)}</text>' if fits else ""
    return (
        f"<g><title>{html.escape(_told(span, now_ms))}</title>"
        f'<rect class="area {STYLE.get(span.what, span.what)}" x="{x:.1f}" y="{top + 1:.0f}" '
        f'width="{end - x:.1f}" height="{STRIP - 2}"/>{text}</g>'
    )


def _shades(spans: Sequence[Span], frame: Frame, top: float, high: float, style: str) -> str:
    """All of one kind as one area: there can be thousands."""
    areas: dict[str, str] = {}
    for one in spans:
        x, end = frame.x(one.begin_ms), frame.x(one.end_ms)
        kind = STYLE.get(one.what, one.what)
        areas[kind] = f"{areas.get(kind, '')}M{x:.1f} {top:.0f}h{end - x:.1f}v{high}h{x - end:.1f}z"
    return "".join(f'<path class="area {kind}{style}" d="{area}"/>' for kind, area in areas.items())


def _chart(life: Life, chart: Curves, size: Size, drawn: Drawn) -> str:
    frame, top = drawn.frame, drawn.top(chart)
    axis = Axis(chart.ticks(top), 8, 8 + HIGH)
    shades = _shades((*life.phases, *life.held_up), frame, axis.top, HIGH, " shade")
    marks = "".join(f'<path class="event" d="M{one.x:.1f} 8v{HIGH}"/>' for one in _placed(life, frame))
    content = shades + axis.svg(frame) + marks + chart.draw(chart, drawn, axis) + times_svg(frame, axis.bottom)
    names = ", ".join(one.name for one in chart.series)
    about = f"{chart.title}{f' ({names})' if names else ''}: at most {chart.spell(top)}, over " + spell_count(
        len(life.records), "commit"
    )
    return svg(size.width, axis.bottom + 22, about, content, size.name)
