"""A job drawn for a terminal of any size: phase, bar, rates, lag, what limits it and what to type.

Where there is room, also the bars of its parts, curves over time, and the last events.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from backfill_cli.catalog import SplitGroup
from backfill_cli.errors import Hint
from backfill_cli.model.limit import Limit
from backfill_cli.model.refill import RefillState
from backfill_cli.model.units import spell_clock, spell_duration, spell_moment
from backfill_cli.view.console import laid_out, shown, shown_lines
from backfill_cli.view.events import events_of
from backfill_cli.view.lines import (
    is_busy,
    lag_of,
    limit_of,
    spell_doing,
    spell_held,
    spell_part,
    spell_partition_state,
    spell_pending,
    spell_read,
    spell_reads,
    spell_runner,
    spell_spool,
    spell_terms,
    spell_written,
)
from backfill_cli.view.model import (
    DEAD,
    ENDED,
    JobView,
    half_written,
    incomplete_beside,
    is_observed,
    phases_of,
    refills_of,
    spell_added,
    spell_age,
    spell_aside,
    spell_deadline,
    spell_derived,
    spell_dropping,
    spell_eta,
    spell_failures,
    spell_half_written,
    spell_headroom,
    spell_not_yet,
    spell_phase,
    spell_quarantined,
    spell_refill,
    spell_refused,
    spell_share,
    spell_skipped,
    spell_table_rates,
    spell_verified,
)
from backfill_cli.view.plot import AROUND, Plot, between, rates, round_number, round_time

WIDEST = 10_000  # columns, to measure how wide a table would be
MARGIN = 2
PLOTS_FROM = 90  # columns; fewer show no time
PLOT_LINES = (8, 6, 4)
EVENTS_FROM, EVENTS = 3, 12
PARTITIONS_SHOWN = 8
LEAST_BAR = 8  # cells
AHEAD, AHEAD_ASCII = "┅", "="
"""Of a bar: what is read and not committed yet."""
LOW = 20  # lines: on fewer each one counts

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

Lines = list[list[Segment]]
Draw = Callable[[RenderableType], Lines]


def live_picture(views: Sequence[JobView], footer: str, nothing: str = "") -> RenderableType:
    """The jobs as a live view shows them. footer: what Ctrl-C does in it. nothing: said if there are none."""
    if len(views) == 1:
        return Picture(views[0], footer, on_screen=True)
    told = Padding(Text(footer, style=QUIET), (0, MARGIN))
    if not views:
        return Group(Padding(Text(shown_lines(nothing)), (1, MARGIN)), told)
    return JobsOnScreen(views, told)


def beginning_picture(name: str, doing: Limit, footer: str) -> RenderableType:
    """A job that is not in the catalog yet. doing: what its start is doing."""
    title = Text.assemble((shown(name), "bold"), "  ", ("starting", CALM))
    lines: list[RenderableType] = [title, Text(), Text(shown(doing.said), style=WARN if doing.hint else "")]
    if doing.hint:
        lines.append(Commands(_to(doing), CALM))
    return Group(Padding(Group(*lines), (1, MARGIN)), Padding(Text(footer, style=QUIET), (0, MARGIN)))


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
            yield _job_lines(view)


def _job_lines(view: JobView) -> RenderableType:
    name = Text.assemble((shown(view.name), "bold"), "  ", _state(view))
    numbers = (spell_phase(view.phase), spell_share(view.share), spell_reads(view), f"lag {lag_of(view)}")
    limit = view.limited_by
    parts: list[RenderableType] = [Spread(name, "  ".join(numbers))]
    parts.append(Padding(Text(shown(limit.said), style=QUIET), (0, 0, 0, 2)))
    if limit.hint:
        parts.append(Padding(Commands(_to(limit), CALM), (0, 0, 0, 2)))
    return Group(*parts)


def _jobs_table(views: Sequence[JobView]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("job", "state", "phase"):
        table.add_column(name, no_wrap=True)
    some = any(view.quarantined for view in views)
    for name in ("copied", "reads", "lag", *(("quarantined",) if some else ())):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("limited by", no_wrap=True)
    for view in views:
        table.add_row(
            Text(shown(view.name), style="bold"),
            _state(view),
            Text(spell_phase(view.phase)),
            Text(spell_share(view.share)),
            Text(spell_reads(view)),
            Text(lag_of(view)),
            *((Text(f"{sum(view.quarantined.values()):,}", style=WARN),) if some else ()),
            Text(shown(str(view.limited_by)), style=QUIET),
        )
    return table


class JobsOnScreen:
    """Jobs on a screen that cannot be scrolled: those that do not fit are counted."""

    def __init__(self, views: Sequence[JobView], footer: RenderableType) -> None:
        self._views, self._footer = views, footer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def drawn(what: RenderableType) -> Lines:
            padded = Padding(what, (0, MARGIN))
            return console.render_lines(padded, options.update(height=None), pad=False)

        height, footer = options.size.height, drawn(self._footer)
        lines = drawn(Jobs(self._views))
        if len(lines) + len(footer) > height:
            lines, left = [], len(self._views)
            for block in map(drawn, map(_job_lines, self._views)):
                if len(lines) + len(block) + 1 + len(footer) > height:
                    break
                lines, left = lines + block, left - 1
            lines += drawn(Text(f"and {left:,} more: backfill status", style=QUIET))
        yield Drawn((lines + footer)[:height])


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines that are drawn already."""

    lines: Lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            yield from line
            yield Segment.line()


@dataclass(frozen=True, slots=True)
class Picture:
    """One job. footer: below it. on_screen: in as many lines as the screen has; what matters least is left out."""

    view: JobView
    footer: str = ""
    on_screen: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        margin = MARGIN if options.max_width > 10 * MARGIN else 0
        inside = options.update(width=options.max_width - 2 * margin, height=None)
        height = options.size.height if self.on_screen else WIDEST
        layout = _Layout(
            self.view, lambda what: console.render_lines(what, inside, pad=False), inside.max_width, height
        )
        edge = [Segment(" " * margin)]
        yield Drawn([edge + line if line else line for line in layout.lines(self.footer)])


class _Layout:
    """What of a job is drawn in so many columns and lines. drawn: the lines of something."""

    def __init__(self, view: JobView, drawn: Draw, width: int, height: int) -> None:
        self._view, self._drawn, self._width, self._height = view, drawn, width, height
        self._left = height

    def lines(self, footer: str) -> Lines:
        """Top to bottom; an empty one is an empty line."""
        view, drawn = self._view, self._drawn
        title = self._taken(drawn(Spread(_title(view), spell_terms(view), QUIET)))
        if self._height < LOW:
            del title[len(drawn(_title(view))) :]
            self._left = self._height - len(title)
        ends = drawn(Text(footer, style=QUIET)) if footer else []
        if not view.created:
            limit, below = self._limit(), self._some(ends, len(ends))
            details = self._some(drawn(KeyValues(_details(view))))
            apart = self._left >= 3
            return self._joined([title, limit + details, below], apart)
        phases = self._taken(drawn(_phases(view, self._width)))
        bar = self._taken(drawn(Bars([_whole(view)])))
        numbers = self._taken(drawn(Numbers(_numbers(view))))
        limit = self._limit()
        below = self._some(ends, len(ends))
        limit += self._some(drawn(KeyValues(_facts(view))))
        bars = bar if self._left < 2 else self._bars(len(bar))
        partitions = self._some(drawn(Columns(_partitions(view))), least=2) if view.partitions else []
        parts = [title, phases, bars, partitions, numbers, [], limit, [], below]
        blanks = sum(map(bool, parts))
        if self._left >= blanks:
            self._left -= blanks
            limit += self._some(drawn(KeyValues(_details(view))))
            parts[5], parts[7] = self._plots(), self._events()
            return self._joined(parts, apart=True)
        return self._joined(parts)

    def _taken(self, lines: Lines) -> Lines:
        """These lines, which are drawn in any case."""
        self._left -= len(lines)
        return lines

    def _some(self, lines: Lines, least: int = 1) -> Lines:
        """As many of these lines as there is room for."""
        return self._taken(lines[: self._left] if self._left >= least else [])

    def _joined(self, parts: list[Lines], apart: bool = False) -> Lines:
        there = [part for part in parts if part]
        lines = [line for part in there for line in (*([[]] if apart else ()), *part)]
        return lines[: self._height]

    def _limit(self) -> Lines:
        """What limits the job, and what to type; where there is little room, the beginning of what limits it."""
        view, limit = self._view, self._view.limited_by
        style = BAD if view.state == "failed" else WARN if _held_up(view) else ""
        name, text = limit_of(view)
        said = self._drawn(KeyValues([(name, text, style)]))
        hint = self._drawn(KeyValues([(f"to {limit.to}", limit.hint, CALM)])) if limit.hint else []
        room = max(1, self._left - len(hint))
        if len(said) > room:
            more = [Segment(" …")] if _narrower(said[room - 1], self._width) else []
            said = [*said[: room - 1], [*said[room - 1], *more]]
        return self._taken((said + hint)[: max(1, self._left)])

    def _bars(self, whole: int) -> Lines:
        """The whole's bar and as many of its parts' as there is room for: those not yet read first; the others are
        counted. whole: how many lines the first has taken already."""
        view = self._view
        groups = view.groups if len(view.groups) > 1 and view.phase == "snapshot" else ()
        least = self._left + whole - len(self._drawn(Bars([_whole(view)])))
        shown_groups = groups if len(groups) <= least else _first(groups, least - 1)
        bars = [_whole(view), *(_of_group(view, group) for group in shown_groups)]
        self._left += whole
        lines = self._taken(self._drawn(Bars(bars)))
        if more := len(groups) - len(shown_groups):
            lines += self._taken(self._drawn(Text(f"  and {more} more", style=QUIET)))
        return lines

    def _plots(self) -> Lines:
        """Rates and lag over time, beside each other."""
        if self._width < PLOTS_FROM or len(self._view.ledger) < 2:
            return []
        lines = next((lines for lines in PLOT_LINES if lines + AROUND + 1 <= self._left), None)
        if lines is None:
            return []
        self._left -= 1
        return self._taken(self._drawn(Beside(_plots(self._view, lines))))

    def _events(self) -> Lines:
        room = min(EVENTS, self._left - 2)
        if self._width < PLOTS_FROM or room < EVENTS_FROM or not (told := events_of(self._view, room)):
            return []
        now_ms = _now_ms(self._view)
        facts = [(spell_clock(one.at_ms, now_ms), one.what, WARN if one.by else QUIET) for one in told]
        self._left -= 1
        return self._taken(self._drawn(Text("last events", style=QUIET)) + self._drawn(KeyValues(facts))[:room])


def _narrower(line: list[Segment], width: int) -> bool:
    return sum(segment.cell_length for segment in line) + 2 <= width


def _state(view: JobView) -> Text:
    if view.runner.alive or view.state in (*ENDED, DEAD):
        return Text(view.state, style=STATE_STYLE.get(view.state, ""))
    return Text(f"{view.state}, no runner", style=WARN)


def _title(view: JobView) -> Text:
    return Text.assemble((shown(view.name), "bold"), "  ", _state(view))


def _phases(view: JobView, width: int) -> Text:
    """`✓ snapshot (copying) ─── ● log-store (catching up) ─── ○ upstream (live)`, with fewer words if need be."""
    ahead = phases_of(view.strategy)
    now = ahead.index(view.phase) if view.phase in ahead else 0
    done = view.state == "done"
    everywhere = [spell_phase(phase) for phase in ahead]
    here = [spell_phase(phase) if at == now else phase for at, phase in enumerate(ahead)]
    for words, between_them in ((everywhere, " ─── "), (everywhere, " ─ "), (here, " ─ "), (list(ahead), " ─ ")):
        line = Text()
        for at, word in enumerate(words):
            line.append(between_them if at else "", QUIET)
            finished = done or at < now
            mark, style = ("✓", DONE) if finished else ("●", f"bold {CALM}") if at == now else ("○", QUIET)
            line.append(f"{mark} {word}", style)
        if line.cell_len <= width:
            return line
    return Text(spell_phase(ahead[now]), style=f"bold {CALM}")


def _numbers(view: JobView) -> list[tuple[str, str]]:
    runs_for = _running_for(view)
    time = [("running for", runs_for)] if runs_for else []
    return [
        ("reads", spell_reads(view)),
        ("lag", lag_of(view)),
        *(time if view.phase == "upstream" else [("time left", spell_eta(view.eta_s))]),
        ("not applied yet", spell_pending(view)),
    ]


def _running_for(view: JobView) -> str:
    """Time since the runner claimed the job; empty without one."""
    begun_ms = view.runner.claimed_ms
    if not view.runner.alive or begun_ms is None or view.as_of_ms is None:
        return ""
    return spell_duration(max(0.0, (_now_ms(view) - begun_ms) / 1000))


def _now_ms(view: JobView) -> int:
    """When the job was read; for one whose upstream was never observed, its last commit."""
    last_ms = view.ledger[-1].committed_ms if view.ledger else 0
    return last_ms if view.as_of_ms is None else view.as_of_ms + round((view.age_s or 0) * 1000)


def _plots(view: JobView, lines: int) -> list[Plot]:
    """They end now, or with the last commit of a job that no runner has."""
    ledger, ends = view.ledger, "now"
    end_ms = _now_ms(view)
    if not view.runner.alive:
        end_ms = ledger[-1].committed_ms
        ends = spell_clock(end_ms, _now_ms(view))
    span_s = round_time(max(60.0, (end_ms - ledger[0].committed_ms) / 1000))
    begin_ms = end_ms - round(span_s * 1000)
    lags = [(one.committed_ms, one.lag_ms / 1000) for one in ledger if one.lag_ms is not None]
    if view.lag_s is not None and is_observed(view) and (not lags or end_ms >= lags[-1][0]):
        lags.append((end_ms, view.lag_s))

    def per_s(cells: int) -> list[float | None]:
        return rates(ledger, begin_ms, end_ms, cells)

    def behind_s(cells: int) -> list[float | None]:
        return between(lags, begin_ms, end_ms, cells)

    what = "rows" if all(one.changes_read == 0 for one in ledger) else "rows and changes"
    return [
        Plot(f"reads, {what} per second", per_s, round_number, "{:,.0f}".format, span_s, ends, lines),
        Plot("lag", behind_s, round_time, spell_duration, span_s, ends, lines),
    ]


def _facts(view: JobView) -> list[tuple[str, Hint | str, str]]:
    """What else is going on, the most important first."""
    facts: list[tuple[str, Hint | str, str]] = []
    if is_busy(view):
        mark = f" ({AHEAD})" if view.rows_in_hand and view.rows_total else ""
        facts.append(("now", spell_doing(view) + mark, ""))
    if view.deadline is not None:
        facts.append(("finish by", spell_deadline(view.deadline), WARN if view.deadline.late else QUIET))
    if view.headroom is not None and view.headroom.small:
        facts.append(("headroom", spell_headroom(view.headroom), WARN))
    if view.pending_commands:
        facts.append(("requested", ", ".join(view.pending_said), ""))
    if view.quarantined:
        facts.append(("quarantined", spell_quarantined(view.quarantined), WARN))
    if view.converging and view.phase != "snapshot":
        facts.append(("consistent", spell_not_yet(view), WARN))
    if newest := incomplete_beside(view):
        facts.append(("incomplete", newest, WARN))
    if view.skipped:
        facts.append(("skipped", spell_skipped(view.skipped), QUIET))
    if view.partitions_added:
        facts.append(("added", spell_added(view.partitions_added), QUIET))
    if view.transient_failures:
        facts.append(("failures", spell_failures(view.transient_failures), QUIET))
    if view.held_bytes is not None:
        facts.append(("kept", spell_held(view.held_bytes), WARN if _held_up(view) else QUIET))
    if view.headroom is not None and not view.headroom.small:
        facts.append(("headroom", spell_headroom(view.headroom), QUIET))
    if view.spool is not None:
        facts.append(("spool", spell_spool(view.spool), QUIET))
    if view.written_per_s is not None:
        facts.append(("writes", spell_written(view.written_per_s), ""))
    if (age := spell_age(view)) is not None:
        facts.append(("numbers", age, QUIET if view.state in ENDED else WARN))
    return facts


def _details(view: JobView) -> list[tuple[str, Hint | str, str]]:
    """Facts that change little."""
    facts: list[tuple[str, Hint | str, str]] = [
        ("refill", spell_refill(one), WARN if one.state is RefillState.FAILED else QUIET)
        for one in refills_of(view)
    ]
    if view.table_rates:
        facts.append(("rates", spell_table_rates(view.table_rates), QUIET))
    if view.dropping:
        facts.append(("to be dropped", spell_dropping(view), QUIET))
    if (at := half_written(view)) is not None:
        facts.append(("half written", spell_half_written(at), WARN))
    facts += [("derived", spell_derived(one, view.runner.alive), QUIET) for one in view.derived]
    facts += [("set aside", spell_aside(one), WARN) for one in view.aside]
    if view.refused is not None:
        facts.append(("refused", spell_refused(view.refused), WARN))
    if view.verified is not None:
        bad = not view.verified.equal or view.verified.different_before
        facts.append(("verified", spell_verified(view.verified), WARN if bad else QUIET))
    if view.created:
        facts.append(("last commit", _last_commit(view), QUIET))
    just = view.state == "starting" and view.runner.pid is None
    facts.append(("runner", "starting" if just else spell_runner(view), QUIET))
    return facts


def _last_commit(view: JobView) -> str:
    """When it was made; when it was begun, where the ledger does not tell."""
    if not view.epoch:
        return "none yet"
    of = view.ledger[-1] if view.ledger and view.ledger[-1].epoch == view.epoch else None
    return spell_moment(of.committed_ms if of else view.epoch)


def _held_up(view: JobView) -> bool:
    return bool(view.paused_by or view.holds or view.not_converging or view.waiting_for)


def _to(limit: Limit) -> Hint:
    """`to continue: …`."""
    return f"to {limit.to}: " + limit.hint


@dataclass(frozen=True, slots=True)
class OneBar:
    """shares: 0 to 1, of what is committed and of what is read besides; None if not known."""

    name: str
    shares: tuple[float | None, float]
    read: str
    bar_style: str
    style: str = ""

    @property
    def share(self) -> str:
        return spell_share(self.shares[0])


def _whole(view: JobView) -> OneBar:
    ahead = view.rows_in_hand / view.rows_total if view.rows_total else 0.0
    return OneBar("snapshot", (view.share, ahead), spell_read(view), DONE if view.share == 1 else CALM)


def _of_group(view: JobView, group: SplitGroup) -> OneBar:
    done = group.splits_read == group.splits
    share, read = 1.0 if done else group.share, spell_part(group, view.rows_estimated)
    return OneBar(f"  {shown(group.label)}", (share, 0.0), read, DONE if done else CALM, QUIET)


def _first(groups: Sequence[SplitGroup], most: int) -> Sequence[SplitGroup]:
    """At most so many, in their order; those that are not read yet before others."""
    places = sorted(range(len(groups)), key=lambda at: groups[at].splits_read == groups[at].splits)[: max(0, most)]
    return [groups[at] for at in sorted(places)]


class Bars:
    """A bar each, as wide as there is room beside the numbers; these are below it if there is little."""

    def __init__(self, bars: Sequence[OneBar]) -> None:
        self._bars = bars

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(cell_len(one.name) for one in self._bars)
        shares = max(len(one.share) for one in self._bars)
        reads = max(len(one.read) for one in self._bars)
        room = options.max_width - names - shares - reads - 6
        for one in self._bars:
            name = Text(one.name + " " * (names - cell_len(one.name)), style=one.style)
            if room >= LEAST_BAR:
                numbers = f"{one.share:>{shares}}  {one.read:>{reads}}"
                yield Text.assemble(name, "  ", _bar(one, room, options.ascii_only), "  ", (numbers, one.style))
                continue
            narrow = options.max_width - names - shares - 4
            bar = _bar(one, narrow, options.ascii_only) if narrow > 0 else Text()
            yield Text.assemble(name, "  ", bar, "  ", (f"{one.share:>{shares}}", one.style))
            yield Text(f"  {one.read}", style=one.style)


def _bar(one: OneBar, width: int, ascii_only: bool) -> Text:
    full, ahead, rest = ("#", AHEAD_ASCII, "-") if ascii_only else ("━", AHEAD, "─")
    share, more = one.shares
    filled = min(width, round((share or 0.0) * width))
    read = min(width, round(((share or 0.0) + more) * width)) - filled
    left = width - filled - read
    return Text.assemble(
        (full * filled, one.bar_style), (ahead * read, one.bar_style), (rest * left, "bright_black")
    )


class Numbers:
    """Names with their values below, or where these are too wide, beside each other."""

    def __init__(self, cells: Sequence[tuple[str, str]]) -> None:
        self._cells = cells

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(len(name), len(value)) + 2 for name, value in self._cells]
        apart = (options.max_width - sum(widths)) // len(widths)
        if apart >= 0:
            for column, style in ((0, QUIET), (1, "bold")):
                told = (cell[column].ljust(width + apart) for cell, width in zip(self._cells, widths, strict=True))
                yield Text("".join(told).rstrip(), style=style)
            return
        line = Text()
        for name, value in self._cells:
            cell = Text.assemble((f"{name} ", QUIET), (value, "bold"))
            if line and line.cell_len + 3 + cell.cell_len > options.max_width:
                yield line
                line = Text()
            line = Text.assemble(line, "   ", cell) if line else cell
        yield line


class Columns:
    """Lines of columns, the first two left, the others right; where there is little room, without some of them."""

    def __init__(self, lines: Sequence[tuple[Text, ...]]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [line for line in self._lines if len(line) > 1]
        there = list(range(len(lines[0])))
        widths = [max(line[at].cell_len for line in lines) for at in there]
        while len(there) > 1 and sum(widths[at] + 2 for at in there) - 2 > options.max_width:
            del there[len(there) // 2]
        spare = options.max_width - sum(widths[at] for at in there)
        apart = max(2, spare // len(there))
        for line in self._lines:
            told = Text()
            for at in there if len(line) > 1 else (0,):
                space = " " * (widths[at] - line[at].cell_len) if len(line) > 1 else ""
                told = Text.assemble(told, line[at], space) if at < 2 else Text.assemble(told, space, line[at])
                told.append(" " * apart if at != there[-1] and len(line) > 1 else "")
            told.truncate(options.max_width)
            yield told


def _partitions(view: JobView) -> list[tuple[Text, ...]]:
    """The state of each partition, or of each table's; those that do not fit are counted."""
    if view.tables:
        return _tables(view)
    names = ("  partition", "state", "next offset", "history ends", "behind")
    lines: list[tuple[Text, ...]] = [tuple(Text(name, style=QUIET) for name in names)]
    for one in view.partitions[:PARTITIONS_SHOWN]:
        told = (f"{one.offset:,}", *("" if n is None else f"{n:,}" for n in (one.target, one.lag)))
        state = Text(spell_partition_state(one), style=DONE if one.state == "finished" else CALM)
        lines.append((Text(f"  {shown(one.partition)}"), state, *map(Text, told)))
    more = len(view.partitions) - PARTITIONS_SHOWN
    if more > 0:
        lines.append((Text(f"  and {more} more", style=QUIET),))
    return lines


def _tables(view: JobView) -> list[tuple[Text, ...]]:
    """The partitions of each table together, furthest behind first."""
    names = ("  table", "live", "partitions", "behind", "most in", "")
    lines: list[tuple[Text, ...]] = [tuple(Text(name, style=QUIET) for name in names)]
    for one in view.tables[:PARTITIONS_SHOWN]:
        number, most = (
            ("", "") if one.furthest is None else (f"partition {one.furthest[0]}", f"{one.furthest[1]:,}")
        )
        behind = "" if one.lag is None else f"{one.lag:,}"
        live = Text(f"{one.live:,}", style=DONE if one.live == one.partitions else CALM)
        told = (f"{one.partitions:,}", behind, number, most)
        lines.append((Text(f"  {shown(one.table)}"), live, *map(Text, told)))
    more = len(view.tables) - PARTITIONS_SHOWN
    if more > 0:
        lines.append((Text(f"  and {more} more, less behind", style=QUIET),))
    return lines


class Beside:
    """Some pictures of equal width, beside each other."""

    def __init__(self, pictures: Sequence[RenderableType]) -> None:
        self._pictures = pictures

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        apart = 4
        width = (options.max_width - apart * (len(self._pictures) - 1)) // len(self._pictures)
        columns = [console.render_lines(one, options.update(width=width)) for one in self._pictures]
        for number, lines in enumerate(zip(*columns, strict=True)):
            if number:
                yield Segment.line()
            for at, line in enumerate(lines):
                yield Segment(" " * apart if at else "")
                yield from line


class Commands:
    """What to type, as `laid_out`."""

    def __init__(self, hint: Hint, style: str) -> None:
        self._hint, self._style = hint, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(map(shown, laid_out(self._hint, options.max_width))), style=self._style)


_UNITS = re.compile(r"(?<=\d) (?=(ms|s|m|h|d|B|KB|MB|GB|TB)\b)")
_TOGETHER = "\ue000"  # a space at which no line is broken; Rich breaks at the character that Unicode has for that


class KeyValues:
    """A name and a value each, values below each other. A command of a hint is not broken if it fits."""

    def __init__(self, facts: Sequence[tuple[str, Hint | str, str]]) -> None:
        self._facts = facts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        names = max(11, *(len(name) for name, _, _ in self._facts), 0)
        room = options.max_width - names - 2
        for name, told, style in self._facts:
            value = told.replace(AHEAD, AHEAD_ASCII) if isinstance(told, str) and options.ascii_only else told
            lines = [shown(line) for line in (laid_out(value, room) if isinstance(value, Hint) else [value])]
            words = [word for line in lines for word in ([line] if isinstance(value, Hint) else line.split())]
            if any(cell_len(word) > room for word in words):  # they have lines of their own, and are copied whole
                yield Text(name, style=QUIET)
                yield Commands(value, style) if isinstance(value, Hint) else Text(shown(value), style=style)
                continue
            kept = _UNITS.sub(_TOGETHER, "\n".join(lines)) if isinstance(value, str) else "\n".join(lines)
            for number, line in enumerate(Text(kept, style=style).wrap(console, room)):
                line.rstrip()
                line.plain = line.plain.replace(_TOGETHER, " ")
                yield Text.assemble((("" if number else name).ljust(names + 2), QUIET), line)


class Spread:
    """Both at the ends of a line; the right one below, if there is no room."""

    def __init__(self, left: Text, right: str, style: str = "") -> None:
        self._left, self._right, self._style = left, right, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        between_them = options.max_width - self._left.cell_len - cell_len(self._right)
        if between_them >= 2:
            yield Text.assemble(self._left, " " * between_them, (self._right, self._style))
        else:
            yield self._left
            yield Text(self._right, style=self._style)
