"""A job drawn for a terminal of 80 columns: phases, a bar per group of splits, the lag's curve, what limits it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from backfill_cli.catalog import SplitGroup
from backfill_cli.errors import Hint
from backfill_cli.model.limit import Limit
from backfill_cli.model.units import spell_duration, spell_epoch
from backfill_cli.view.console import laid_out, shown, shown_lines
from backfill_cli.view.lines import (
    spell_allowed,
    spell_doing,
    spell_held,
    spell_lag,
    spell_part,
    spell_partition_state,
    spell_pending,
    spell_rate,
    spell_read,
    spell_runner,
    spell_spool,
    spell_written,
)
from backfill_cli.view.model import (
    DEAD,
    ENDED,
    JobView,
    spell_age,
    spell_eta,
    spell_phase,
    spell_quarantined,
    spell_share,
    spell_verified,
)

PHASES = ("snapshot", "log-store", "upstream")
WIDEST = 10_000  # columns, to measure how wide a table would be


class Jobs:
    """All jobs: one line each if everything fits, else several; nothing is cut off, least of all the limits."""

    def __init__(self, views: Sequence[JobView]) -> None:
        self._views = views

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _jobs_table(self._views)
        if Measurement.get(console, options.update(width=WIDEST), table).maximum <= options.max_width:
            yield table
            return
        for view in self._views:
            name = Text.assemble((shown(view.name), "bold"), "  ", _state(view))
            numbers = (
                f"{spell_share(view.share)}  {spell_rate(view.rows_per_s)} rows/s  lag {spell_lag(view.lag_s)}"
            )
            yield row(name, Text(f"{spell_phase(view.phase)}  {numbers}"))
            limit = view.limited_by
            yield Padding(Text(shown(limit.said), style=QUIET), (0, 0, 0, 2))
            if limit.hint:
                yield Padding(Commands(_to(limit), CALM), (0, 0, 0, 2))


def _jobs_table(views: Sequence[JobView]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("job", "state", "phase"):
        table.add_column(name, no_wrap=True)
    some = any(view.quarantined for view in views)
    for name in ("done", "rows/s", "lag", *(("quarantined",) if some else ())):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("limited by", no_wrap=True)
    for view in views:
        table.add_row(
            Text(shown(view.name), style="bold"),
            _state(view),
            Text(spell_phase(view.phase)),
            Text(spell_share(view.share)),
            Text(spell_rate(view.rows_per_s)),
            Text(spell_lag(view.lag_s)),
            *((Text(f"{sum(view.quarantined.values()):,}", style=WARN),) if some else ()),
            Text(shown(str(view.limited_by)), style=QUIET),
        )
    return table


@dataclass(frozen=True, slots=True)
class Room:
    """What there is room for. curve: of the lag. apart: empty lines. details: facts that change nothing.

    groups: bars of groups at most, None for all. partitions: their states.
    """

    curve: bool = True
    apart: bool = True
    details: bool = True
    groups: int | None = None
    partitions: bool = True


ROOMY = Room()
LESS = (ROOMY, Room(curve=False), Room(curve=False, apart=False))
LITTLE = Room(curve=False, apart=False, details=False)


class FitToScreen:
    """A job in full, on a screen that cannot be scrolled: parts that other lines also show are left out first."""

    def __init__(self, view: JobView, footer: RenderableType) -> None:
        self._view = view
        self._footer = footer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def over(room: Room) -> int:
            """How many lines it takes beyond the screen."""
            lines = console.render_lines(self._drawn(room), options.update(height=None))
            return len(lines) - options.size.height

        fitting = next((room for room in (*LESS, LITTLE) if over(room) <= 0), None)
        if fitting is None:
            counted = 1  # the line that counts the others
            groups = max(0, len(self._view.groups) - over(LITTLE) - counted)
            fitting = replace(LITTLE, groups=groups)
            fitting = fitting if over(fitting) <= 0 else replace(fitting, partitions=False)
        yield self._drawn(fitting)

    def _drawn(self, room: Room) -> RenderableType:
        return Group(job_picture(self._view, room), self._footer)


def live_picture(views: Sequence[JobView], footer: str, nothing: str = "") -> RenderableType:
    """The jobs as a live view shows them. footer: what Ctrl-C does in it. nothing: said if there are none."""
    told = Padding(Text(footer, style=QUIET), (0, 2))
    if not views:
        return Group(Padding(Text(shown_lines(nothing)), (1, 2)), told)
    return FitToScreen(views[0], told) if len(views) == 1 else Group(Padding(Jobs(views), (1, 2)), told)


def beginning_picture(name: str, doing: Limit, footer: str) -> RenderableType:
    """A job that is not in the catalog yet. doing: what its start is doing."""
    title = Text.assemble((shown(name), "bold"), "  ", ("starting", CALM))
    lines: list[RenderableType] = [title, Text(), Text(shown(doing.said), style=WARN if doing.hint else "")]
    if doing.hint:
        lines.append(Commands(_to(doing), CALM))
    return Group(Padding(Group(*lines), (1, 2)), Padding(Text(footer, style=QUIET), (0, 2)))


def job_picture(view: JobView, room: Room = ROOMY) -> RenderableType:
    """One job in full, or what there is room for."""
    if not view.created:
        return Padding(Group(_title(view), Text(), _limit(view, details=True)), (1, 2))
    view = view if room.partitions else replace(view, partitions=())
    parts: list[RenderableType] = [_title(view), _phases(view), bars(view, room.groups), _numbers(view)]
    lags = [*view.recent_lag_s, *([view.lag_s] if view.lag_s is not None else [])]
    if len(lags) > 2 and room.curve:
        parts.append(_lag(view, lags))
    parts.append(_limit(view, room.details))
    spaced = [line for part in parts for line in (Text(), part)][1:]
    return Padding(Group(*(spaced if room.apart else parts)), (1 if room.apart else 0, 2))


def _state(view: JobView) -> Text:
    if view.runner.alive or view.state in (*ENDED, DEAD):
        return Text(view.state, style=STATE_STYLE.get(view.state, ""))
    return Text(f"{view.state}, no runner", style=WARN)


def _title(view: JobView) -> RenderableType:
    name = Text.assemble((shown(view.name), "bold"), "  ", _state(view))
    terms = f"{shown(view.strategy)}, until {shown(view.until)}" if view.created else "being created"
    return row(name, Text(terms, style=QUIET))


def _phases(view: JobView) -> RenderableType:
    """`✓ snapshot ─── ● log-store (catching up) ─── ○ upstream (live)`."""
    ahead = [
        phase for phase in PHASES if phase != "log-store" or not view.partitions
    ]  # jobs with partitions have no such phase
    now = ahead.index(view.phase) if view.phase in ahead else 0
    line = Text()
    for index, phase in enumerate(ahead):
        if index:
            line.append(" ─── ", QUIET)
        here = index == now and view.state != "done"
        finished = index < now or view.state == "done"
        mark, style = ("✓", DONE) if finished else ("●", f"bold {CALM}") if here else ("○", QUIET)
        line.append(f"{mark} {spell_phase(phase)}", style)
    return line


def _numbers(view: JobView) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in range(4):
        grid.add_column(ratio=1, overflow="fold")
    follows = view.phase == "upstream"
    cells = [
        ("rows/s", spell_rate(view.rows_per_s))
        if view.phase == "snapshot"
        else ("changes/s", spell_rate(view.changes_per_s)),
        ("running for", _running_for(view)) if follows else ("eta", spell_eta(view.eta_s)),
        ("lag", spell_lag(view.lag_s)),
        ("pending", spell_pending(view)),
    ]
    grid.add_row(*(Text(name, style=QUIET) for name, _ in cells))
    grid.add_row(*(Text(value, style="bold") for _, value in cells))
    return grid


def _running_for(view: JobView) -> str:
    """Time since the runner claimed the job."""
    begun_ms = view.runner.claimed_ms
    if not view.runner.alive or begun_ms is None or view.as_of_ms is None:
        return "N/A"
    return spell_duration(max(0.0, (view.as_of_ms - begun_ms) / 1000 + (view.age_s or 0)))


def _lag(view: JobView, lags: Sequence[float]) -> RenderableType:
    """The lag of the newest epochs, and now."""
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, ratio=1)
    top = spell_lag(max(lags))
    allowed = f", allowed {spell_allowed(view)}" if view.allowed is not None else ""
    note = f"at most {top}{allowed}"
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(Text("lag", style=QUIET), Curve(lags), Text(note, style=QUIET))
    return grid


def _limit(view: JobView, details: bool) -> RenderableType:
    """What limits the job, and below it the command that changes that."""
    limit, to = view.limited_by, f"to {view.limited_by.to}"
    style = BAD if view.state == "failed" else WARN if _held_up(view) else ""
    facts: list[tuple[str, Hint | str, str]] = [(limit.kind.value, limit.text, style)]
    if limit.hint:
        facts.append((to, limit.hint, CALM))
    if view.written_per_s is not None:
        facts.append(("written/s", spell_written(view.written_per_s), ""))
    if view.quarantined:
        facts.append(("quarantined", spell_quarantined(view.quarantined), WARN))
    if view.converging:
        facts.append(("converging", "until the change log passes the end of the load", WARN))
    if view.held_bytes is not None:
        facts.append(("held back", spell_held(view.held_bytes), WARN if _held_up(view) else QUIET))
    if view.spool is not None:
        facts.append(("spool", spell_spool(view.spool), QUIET))
    if view.doing is not None:
        facts.append(("now", spell_doing(view), QUIET))
    if view.pending_commands:
        facts.append(("requested", ", ".join(view.pending_commands), ""))
    if details and view.created:
        facts.append(("committed", f"epoch {spell_epoch(view.epoch)}", QUIET))
    if view.verified is not None:
        facts.append(("verified", spell_verified(view.verified), QUIET if view.verified.equal else WARN))
    if details:
        facts.append(("runner", spell_runner(view), QUIET))
    if (age := spell_age(view)) is not None:
        facts.append(("numbers", age, QUIET if view.state in ENDED else WARN))
    return KeyValues(facts)


def _held_up(view: JobView) -> bool:
    return bool(view.paused_by or view.not_converging or view.waiting_for)


def _to(limit: Limit) -> Hint:
    """`to continue: …`."""
    return f"to {limit.to}: " + limit.hint


PARTITIONS_SHOWN = 8


def bars(view: JobView, most: int | None = None) -> RenderableType:
    """most: groups shown at most, those not yet read first; the others are counted. None: all."""
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=24)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    colour = DONE if view.share == 1 else CALM
    grid.add_row(Text("snapshot"), Bar(view.share, colour), Text(spell_share(view.share)), Text(spell_read(view)))
    if len(view.groups) > 1 and most != 0:
        shown_groups = _first(view.groups, most)
        for group in shown_groups:
            done = _is_read(group)
            grid.add_row(
                Text(f"  {shown(group.label)}", style=QUIET),
                Bar(group.share, DONE if done else CALM),
                Text(spell_share(1.0 if done else group.share), style=QUIET),
                Text(spell_part(group, view.rows_estimated), style=QUIET),
            )
        if more := len(view.groups) - len(shown_groups):
            grid.add_row(Text(f"  and {more} more", style=QUIET))
    return Group(grid, Text(), _partitions(view)) if view.partitions else grid


def _is_read(group: SplitGroup) -> bool:
    return group.splits_read == group.splits


def _first(groups: Sequence[SplitGroup], most: int | None) -> Sequence[SplitGroup]:
    """At most so many, in their order."""
    places = sorted(range(len(groups)), key=lambda place: _is_read(groups[place]))[:most]
    return [groups[place] for place in sorted(places)]


def _partitions(view: JobView) -> RenderableType:
    """The state of each partition; those that do not fit are counted."""
    grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for column in range(5):
        grid.add_column(justify="left" if column < 2 else "right", no_wrap=True, ratio=1)
    names = ("  partition", "state", "next offset", "history ends", "behind")
    grid.add_row(*(Text(name, style=QUIET) for name in names))
    for one in view.partitions[:PARTITIONS_SHOWN]:
        told = (f"{one.offset:,}", *("" if n is None else f"{n:,}" for n in (one.target, one.lag)))
        state = Text(spell_partition_state(one), style=DONE if one.state == "finished" else CALM)
        grid.add_row(Text(f"  {shown(one.partition)}"), state, *(Text(number) for number in told))
    more = len(view.partitions) - PARTITIONS_SHOWN
    if more > 0:
        grid.add_row(Text(f"  and {more} more", style=QUIET))
    return grid


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

    def __init__(self, hint: Hint, style: str) -> None:
        self._hint, self._style = hint, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(map(shown, laid_out(self._hint, options.max_width))), style=self._style)


class KeyValues:
    """A name and a value each, values below each other. A command of a hint is not broken if it fits."""

    def __init__(self, facts: Sequence[tuple[str, Hint | str, str]]) -> None:
        self._facts = facts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(10, *(len(name) for name, _, _ in self._facts))
        room = options.max_width - names - 2
        for name, value, style in self._facts:
            lines = [shown(line) for line in (laid_out(value, room) if isinstance(value, Hint) else [value])]
            if isinstance(value, Hint) and any(len(line) > room for line in lines):
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
