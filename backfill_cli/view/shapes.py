"""What pictures of jobs are made of: colours, a bar, a curve of blocks, two texts on one line."""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from backfill_cli.view.hints import laid_out

CURVE = "▁▂▃▄▅▆▇█"
ASCII_CURVE = "_.-~=+*#"

CALM, DONE, WARN, BAD, QUIET = "cyan", "green", "yellow", "red", "dim"
STATE_STYLE = {
    "running": DONE,
    "done": DONE,
    "starting": CALM,
    "pausing": WARN,
    "paused": WARN,
    "stopping": WARN,
    "stopped": QUIET,
    "failed": BAD,
    "dead": BAD,
}


class Bar:
    """A progress bar, as wide as there is room. share: 0 to 1, None if not known."""

    def __init__(self, share: float | None, style: str) -> None:
        self._share = share
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        full, half, rest = ("#", "", "-") if options.ascii_only else ("━", "╸", "─")
        halves = round((self._share or 0.0) * width * 2)
        filled = full * (halves // 2) + (half if halves % 2 else "")
        filled = filled[:width]
        yield Segment(filled, Style.parse(self._style))
        yield Segment(rest * (width - len(filled)), Style.parse("bright_black"))


class Commands:
    """What to type, as `laid_out`."""

    def __init__(self, text: str, style: str) -> None:
        self._text, self._style = text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(laid_out(self._text, options.max_width)), style=self._style)


class Facts:
    """A name and a value each, values below each other. wide: of that name, a command is not broken if it fits."""

    def __init__(self, facts: Sequence[tuple[str, str, str]], wide: str) -> None:
        self._facts, self._wide = facts, wide

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(10, *(len(name) for name, _, _ in self._facts))
        room = options.max_width - names - 2
        for name, value, style in self._facts:
            lines = laid_out(value, room) if name == self._wide else [value]
            if name == self._wide and any(len(line) > room for line in lines):
                yield Text(name, style=QUIET)
                yield Commands(value, style)
                continue
            grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
            grid.add_column(no_wrap=True, width=names)
            grid.add_column(ratio=1, overflow="fold")
            grid.add_row(Text(name, style=QUIET), Text("\n".join(lines), style=style))
            yield grid


class Curve:
    """Values as a line of blocks, newest at the right; from 0 to the largest one."""

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        blocks = ASCII_CURVE if options.ascii_only else CURVE
        values = self._values[-options.max_width :]
        top = max(values, default=0.0)
        levels = (round(value / top * (len(blocks) - 1)) if top > 0 else 0 for value in values)
        yield Segment("".join(blocks[level] for level in levels), Style.parse(CALM))


def row(left: RenderableType, right: RenderableType) -> Table:
    """Both on one line; a left one that is too long is folded."""
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid
