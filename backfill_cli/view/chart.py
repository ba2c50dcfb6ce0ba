"""Charts over time as SVG: axes in round numbers, lines, and labels of events that never overlap.

All is laid out in pixels for a given width; colours are classes, so that the page decides on them.
"""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backfill_cli.model.units import spell_count, spell_duration

LETTER = 6.9
"""Pixels that a letter takes at most on average, at 11 pixels, in any of the page's fonts."""

LINE = 16
"""Pixels from one line of labels to the next."""

BELOW = 18
"""Pixels from a time axis to the feet of its times: the lowest value beside the axis reaches 7 below it."""

APART = 6
"""Pixels between two labels, at least."""

LANES = 5
LONGEST = 40
"""Letters of a label, and at most `SHARE` of the width."""

SHARE = 0.7

STEPS_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3_600 * n for n in (1, 2, 3, 6, 12)),
    *(86_400 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)),
)
"""What people count time in."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What charts below each other share: the times at both ends, and the pixels between which they are."""

    begin_ms: int
    end_ms: int
    left: float
    right: float

    def x(self, at_ms: int) -> float:
        share = (at_ms - self.begin_ms) / max(1, self.end_ms - self.begin_ms)
        return self.left + (self.right - self.left) * min(1.0, max(0.0, share))

    @property
    def width(self) -> float:
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis. at: of the axis's unit."""

    at: float
    label: str


def wide(text: str) -> float:
    """Pixels that a text takes at most."""
    return len(text) * LETTER


def count_step(top: float, most: int) -> float:
    """The least of 1, 2, 5, 10 … that leads to `top`, which is above 0, in at most so many steps."""
    power = 10.0 ** math.floor(math.log10(top / most))
    return next(power * n for n in (1, 2, 5, 10) if power * n * most >= top * (1 - 1e-9))


def duration_step(top_s: float, most: int) -> float:
    """The same for seconds, in what people count time in; of less than 10 ms nothing is seen."""
    if top_s <= 1:
        return count_step(max(top_s, 0.01), most)
    step = next((step for step in STEPS_S if step * most >= top_s), None)
    return count_step(top_s / 86_400, most) * 86_400 if step is None else step


def count_ticks(top: float, most: int = 4) -> list[Tick]:
    """From 0 to a round number that is at least `top`; of values below a thousandth nothing is seen."""
    if top < 1e-3:
        return [Tick(0, "0")]
    step = count_step(top, most)
    return [Tick(step * n, f"{step * n:,.10g}") for n in range(math.ceil(top / step - 1e-9) + 1)]


def duration_ticks(top_s: float, most: int = 4) -> list[Tick]:
    """As `count_ticks`, in milliseconds, seconds, minutes, hours or days; from `0 s`."""
    if 0 < top_s <= 1:
        told = count_ticks(max(top_s, 0.01), most)
        return [Tick(one.at, f"{one.at * 1000:g} ms" if 0 < one.at < 0.999 else f"{one.at:.0f} s") for one in told]
    if top_s > STEPS_S[-1] * most:
        return [Tick(one.at * 86_400, f"{one.label} d") for one in count_ticks(top_s / 86_400, most)]
    step = duration_step(top_s, most)
    return [Tick(step * n, spell_duration(step * n)) for n in range(math.ceil(top_s / step) + 1)]


def time_ticks(frame: Frame) -> list[Tick]:
    """Round times of day of this machine, as many as there is room for."""
    room = max(1, int(frame.width // (wide("00:00:00") + 2 * APART)))
    span_s = max(1.0, (frame.end_ms - frame.begin_ms) / 1000)
    step = next((step for step in STEPS_S if step * room >= span_s), STEPS_S[-1])
    offset_s = _offset_s(frame.begin_ms / 1000)
    first = math.ceil((frame.begin_ms / 1000 + offset_s) / step) * step - offset_s
    count = int((frame.end_ms / 1000 - first) // step) + 1
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86_400 else "%d %b"
    times_s = [first + step * n for n in range(max(0, min(count, room + 1) + 1))]
    if step >= 86_400:  # a day can have 23 or 25 hours
        times_s = [at_s + offset_s - _offset_s(at_s) for at_s in times_s]
    return [
        Tick(at_ms, f"{datetime.fromtimestamp(at_ms / 1000).astimezone():{form}}")
        for at_ms in (round(at_s * 1000) for at_s in times_s)
        if frame.begin_ms <= at_ms <= frame.end_ms
    ]


def _offset_s(at_s: float) -> float:
    """How far this machine's time of day is ahead of UTC then."""
    return (datetime.fromtimestamp(at_s).astimezone().utcoffset() or timedelta()).total_seconds()


@dataclass(frozen=True, slots=True)
class Label:
    """A label of `count` events at `x`. Its box is from `left` to `right`, in the line `lane`."""

    x: float
    count: int
    text: str
    left: float
    lane: int

    @property
    def right(self) -> float:
        return self.left + wide(self.text)


def labels(events: Iterable[tuple[float, str]], begin: float, end: float) -> tuple[Label, ...]:
    """The events (place, what) with labels that do not intersect, between `begin` and `end`.

    Events that are close together share one, which counts them; the closer they are put together, the fewer labels
    there are, until all fit into `LANES` lines.
    """
    ordered = sorted(events, key=lambda one: one[0])
    apart = 4.0
    while True:
        placed = _placed(_together(ordered, apart), begin, end)
        if placed is not None:
            return placed
        apart *= 1.5


def _together(events: Sequence[tuple[float, str]], apart: float) -> list[tuple[float, list[str]]]:
    found: list[tuple[float, list[str]]] = []
    for x, what in events:
        if found and x - found[-1][0] < apart:
            found[-1][1].append(what)
        else:
            found.append((x, [what]))
    return found


def _named(all_of: Sequence[str], longest: float) -> str:
    """`pause, resume`, `throttle ×3`, `12 events`. longest: in pixels."""
    different = list(dict.fromkeys(all_of))
    text = different[0] if len(different) == 1 else ", ".join(all_of)
    if len(different) == 1 and len(all_of) > 1:
        text = f"{text} ×{len(all_of):,}"
    return text if wide(text) <= longest else spell_count(len(all_of), "event")


def _placed(groups: Sequence[tuple[float, list[str]]], begin: float, end: float) -> tuple[Label, ...] | None:
    """Each below all that it would touch: so a line from a label crosses no label that is to its right.

    None if there are too few lines.
    """
    placed: list[Label] = []
    last = [-math.inf] * LANES
    longest = min(LONGEST * LETTER, SHARE * (end - begin))
    for x, all_of in groups:
        text = _named(all_of, longest)
        left = max(begin, min(x, end - wide(text)))
        lane = 1 + max((n for n, right in enumerate(last) if right + APART > left), default=-1)
        if lane >= LANES:
            return None
        placed.append(Label(x, len(all_of), text, left, lane))
        last[lane] = placed[-1].right
    return tuple(placed)


def labels_svg(placed: Sequence[Label], bottom: float) -> str:
    """A line from each label down to `bottom`, then the labels, which cover the lines of others."""
    lines = "".join(
        f'<path class="event" d="M{one.x:.1f} {one.lane * LINE + LINE - 3}V{bottom:.0f}"/>' for one in placed
    )
    boxes = "".join(
        f'<rect class="paper" x="{one.left - 2:.1f}" y="{one.lane * LINE}" width="{wide(one.text) + 4:.1f}" '
        f'height="{LINE - 2}"/><text class="label" x="{one.left:.1f}" y="{one.lane * LINE + 11}">'
        f"{html.escape(one.text)}</text>"
        for one in placed
    )
    return lines + boxes


def height_of(placed: Sequence[Label]) -> int:
    return LINE * (1 + max((one.lane for one in placed), default=-1))


@dataclass(frozen=True, slots=True)
class Axis:
    """Values upwards, from 0 at pixel `bottom`, to the last tick at `top`."""

    ticks: Sequence[Tick]
    top: float
    bottom: float

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / (self.ticks[-1].at or 1)

    def svg(self, frame: Frame) -> str:
        return "".join(
            f'<path class="grid" d="M{frame.left:.0f} {self.y(one.at):.1f}H{frame.right:.0f}"/>'
            f'<text x="{frame.left - 6:.0f}" y="{self.y(one.at) + 4:.1f}" text-anchor="end">{one.label}</text>'
            for one in self.ticks
        )


def times_svg(frame: Frame, y: float) -> str:
    """The times of day at pixel `y`; none that would leave the picture."""
    told = []
    for one in time_ticks(frame):
        x, half = frame.x(round(one.at)), wide(one.label) / 2
        if x - half >= 0 and x + half <= frame.right + 8:
            told.append(
                f'<path class="tick" d="M{x:.1f} {y:.0f}v4"/>'
                f'<text x="{x:.1f}" y="{y + BELOW:.0f}" text-anchor="middle">{one.label}</text>'
            )
    return "".join(told)


def stairs(frame: Frame, axis: Axis, steps: Sequence[tuple[int, float]], end_ms: int) -> str:
    """A path: from each time on (ms, value), up to `end_ms`; a value that stays is one line."""
    path, before = "", None
    for at_ms, value in steps:
        if value == before:
            continue
        x, y = frame.x(at_ms), axis.y(value)
        path += f"M{x:.1f} {y:.1f}" if before is None else f"H{x:.1f}V{y:.1f}"
        before = value
    return f"{path}H{frame.x(end_ms):.1f}"


def line(frame: Frame, axis: Axis, corners: Sequence[tuple[int, float]]) -> str:
    """A path through (ms, value)."""
    places = (f"{frame.x(at_ms):.1f} {axis.y(value):.1f}" for at_ms, value in corners)
    return "M" + "L".join(places) if corners else ""


def dots(
    frame: Frame, axis: Axis, points: Sequence[tuple[int, float]], mark: Callable[[float, float], str]
) -> str:
    """A path of marks."""
    return "".join(mark(frame.x(at_ms), axis.y(value)) for at_ms, value in points)


def circle(x: float, y: float) -> str:
    return f"M{x - 2:.1f} {y:.1f}a2 2 0 1 0 4 0a2 2 0 1 0-4 0"


def cross(x: float, y: float) -> str:
    return f"M{x - 2:.1f} {y - 2:.1f}l4 4m0-4l-4 4"


def svg(width: float, height: float, about: str, content: str, classes: str) -> str:
    """A picture. about: what it shows, for who does not see it."""
    return (
        f'<svg class="{classes}" role="img" aria-label="{html.escape(about)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}">{content}</svg>'
    )
