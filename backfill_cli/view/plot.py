"""A number over time, in the cells of a terminal: a scale in round numbers at its left, the time below.

Its time ends now, or when the job ended; how far it goes back is a round time, too.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.units import spell_duration
from backfill_cli.view.chart import count_step, duration_step
from backfill_cli.view.past import began_ms, spread

LEVELS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = "  ..::||#"
AROUND = 3
"""Lines of a plot beside those of the curve: its title, the axis, the times."""


def round_number(least: float) -> float:
    """The next of 2, 4, 10, 20, 40 …: its half is round, and whole, too."""
    return 2 * count_step(max(2.0, least), 2)


def round_time(least_s: float) -> float:
    """Seconds: the next duration whose half is round, too."""
    return 2 * duration_step(least_s, 2)


def rates(records: Sequence[EpochRecord], begin_ms: int, end_ms: int, cells: int) -> list[float | None]:
    """Rows and changes read per second in each of so many equal times; None before the oldest record.

    records: oldest first.
    """
    if not records:
        return [None] * cells
    width_ms = (end_ms - begin_ms) / cells
    read = [0.0] * cells
    for one, part in spread(records, begin_ms, width_ms, cells):
        for cell, share in part:
            read[cell] += (one.snapshot_rows + one.changes_read) * share
    known = (began_ms(records[0]) - begin_ms) / width_ms
    return [None if cell < int(known) else rows * 1_000 / width_ms for cell, rows in enumerate(read)]


def between(points: Sequence[tuple[int, float]], begin_ms: int, end_ms: int, cells: int) -> list[float | None]:
    """The value at the end of each of so many equal times, on a line through the points (ms, value).

    points: in their order. None before the first one and after the last one.
    """
    times = [at_ms for at_ms, _ in points]
    width_ms = (end_ms - begin_ms) / cells
    found: list[float | None] = []
    for cell in range(cells):
        at_ms = begin_ms + (cell + 1) * width_ms
        after = bisect_right(times, at_ms)
        if after == 0 or (after == len(points) and at_ms - times[-1] >= width_ms):
            found.append(None)
        elif after == len(points):
            found.append(points[-1][1])
        else:
            (from_ms, a), (to_ms, b) = points[after - 1], points[after]
            found.append(a + (b - a) * (at_ms - from_ms) / (to_ms - from_ms))
    return found


@dataclass(frozen=True, slots=True)
class Plot:
    """values: of one cell, given how many there are; not negative. top: of the scale. lines: of the curve.

    seconds: how much time it spans. end: how its right end is called.
    """

    title: str
    values: Callable[[int], Sequence[float | None]]
    round_up: Callable[[float], float]
    spell: Callable[[float], str]
    seconds: float
    end: str
    lines: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        top = self.round_up(
            max((one for one in self.values(options.max_width) if one is not None), default=0) or 1
        )
        scale = [self.spell(top), self.spell(top / 2), "0"]
        left = max(map(len, scale))
        cells = max(1, options.max_width - left - 2)
        values = self.values(cells)
        ascii_only = options.ascii_only
        tick, bar, corner, line = ("+", "|", "+", "-") if ascii_only else ("┤", "│", "└", "─")
        yield Text(self.title[: options.max_width], style="dim")
        for row in range(self.lines):
            label = (scale[0] if row == 0 else scale[1] if row * 2 == self.lines else "").rjust(left)
            mark = tick if label.strip() else bar
            yield Text.assemble((f"{label} {mark}", "dim"), (self._row(values, top, row, ascii_only), "cyan"))
        yield Text(f"{scale[2].rjust(left)} {corner}{line * cells}", style="dim")
        yield Text(" " * (left + 2) + self._times(cells), style="dim")

    def _row(self, values: Sequence[float | None], top: float, row: int, ascii_only: bool) -> str:
        """The cells of one line, counted from above."""
        levels = ASCII_LEVELS if ascii_only else LEVELS
        below = 8 * (self.lines - 1 - row)
        told = []
        for value in values:
            eighths = 0 if not value else max(1, round(value / top * 8 * self.lines))
            told.append(levels[max(0, min(8, eighths - below))])
        return "".join(told)

    def _times(self, cells: int) -> str:
        """What is below the axis, as far as there is room."""
        ago = "ago" if self.end == "now" else "before"
        first, middle = f"{spell_duration(self.seconds)} {ago}", f"{spell_duration(self.seconds / 2)} {ago}"
        half = cells // 2 - len(middle) // 2
        told = first.ljust(half) + middle
        if len(first) + 2 <= half and len(told) + len(self.end) + 2 <= cells:
            return told + self.end.rjust(cells - len(told))
        if len(first) + len(self.end) + 1 <= cells:
            return first + self.end.rjust(cells - len(first))
        return self.end.rjust(cells)[:cells]
