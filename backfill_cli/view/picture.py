"""A job drawn for a terminal of 80 columns: phases, a bar per group of splits, the lag's curve, what limits it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from backfill_cli.catalog.moments import spell_epoch
from backfill_cli.errors import parted
from backfill_cli.model.units import spell_duration
from backfill_cli.view.bars import bars
from backfill_cli.view.lines import (
    spell_allowed,
    spell_doing,
    spell_held,
    spell_lag,
    spell_limit,
    spell_pending,
    spell_rate,
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
    spell_share,
)
from backfill_cli.view.quarantine import spell_quarantined
from backfill_cli.view.shapes import BAD, CALM, DONE, QUIET, STATE_STYLE, WARN, Commands, Curve, Facts, row
from backfill_cli.view.text import shown, shown_lines
from backfill_cli.view.verified import spell_verified

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
            limit, command = _parted(view.limited_by)
            yield Padding(Text(shown(limit), style=QUIET), (0, 0, 0, 2))
            if command:
                yield Padding(Commands(shown(command), CALM), (0, 0, 0, 2))


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
            Text(shown(view.limited_by), style=QUIET),
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


class Fitted:
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
    return Fitted(views[0], told) if len(views) == 1 else Group(Padding(Jobs(views), (1, 2)), told)


def beginning_picture(name: str, doing: str, footer: str) -> RenderableType:
    """A job that is not in the catalog yet. doing: what its start is doing."""
    title = Text.assemble((shown(name), "bold"), "  ", ("starting", CALM))
    limit, command = _parted(doing)
    lines: list[RenderableType] = [title, Text(), Text(shown(limit), style=WARN if command else "")]
    if command:
        lines.append(Commands(shown(command), CALM))
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
    name, said = spell_limit(view)
    limit, to, command = parted(said)
    style = BAD if view.state == "failed" else WARN if _held_up(view) else ""
    facts = [(name, limit, style)]
    if command:
        facts.append((to, command, CALM))
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
    return Facts([(shown(name), shown(value), how) for name, value, how in facts], wide=to)


def _held_up(view: JobView) -> bool:
    return bool(view.paused_by or view.not_converging or view.waiting_for)


def _parted(limited_by: str) -> tuple[str, str]:
    """What limits the job, and `to continue: …`."""
    limit, to, command = parted(limited_by)
    return limit, f"{to}: {command}" if to else ""
