"""A job as one HTML page: how far it is, curves over time with commands marked, splits, config. Or two.

Self-contained: the curves are SVG drawn by matplotlib, there is no script, and nothing is fetched.
"""

import html
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby, pairwise
from string import Template
from typing import TYPE_CHECKING

from backfill_cli.errors import UsageError, shell
from backfill_cli.model.checkpoint import EpochRecord, Totals
from backfill_cli.model.job import Phase
from backfill_cli.model.units import spell_duration, spell_moment, spell_size
from backfill_cli.view.lines import (
    spell_lag,
    spell_partition,
    spell_pending,
    spell_rate,
    spell_read,
    spell_rows,
    spell_spool,
    spell_written,
)
from backfill_cli.view.model import JobView, spell_quarantined, spell_share, spell_verified
from backfill_cli.view.reports import HISTORY, history_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LISTED = 30


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report is made of. records: oldest first. config: as stored, secrets as references."""

    view: JobView
    totals: Totals
    records: Sequence[EpochRecord]
    config: str
    now_ms: int


def report(*jobs: Reported) -> str:
    """The page, of one job or two side by side. Raises UsageError if the plotting library is not installed."""
    return _template("report.html").substitute(
        title=_text(" and ".join(told.view.name for told in jobs)),
        count=len(jobs),
        jobs="\n".join(map(_job, jobs)),
        made=_text(spell_moment(jobs[0].now_ms)),
    )


def _template(name: str) -> Template:
    return Template((files("backfill_cli.view") / name).read_text("utf-8"))


def _job(told: Reported) -> str:
    view = told.view
    return _template("report_job.html").substitute(
        job=_text(view.name),
        state=_text(view.state),
        strategy=_text(view.strategy),
        until=_text(view.until),
        limited_by=_text(view.limited_by),
        facts=_facts(told),
        curves=_curves(told),
        splits=_splits(view),
        epochs=_epochs(told.records),
        config=_text(json.dumps(json.loads(told.config), indent=2, ensure_ascii=False)),
    )


def _curves(told: Reported) -> str:
    """Up to now while a runner observes the upstream, else up to the last epoch."""
    if not told.records:
        return "<p>Nothing has been committed yet.</p>"
    view = told.view
    until_ms = told.now_ms if view.runner.alive else told.records[-1].committed_ms
    ends = {Phase.SNAPSHOT: view.snapshot_finished_ms, Phase.LOG_STORE: view.log_store_finished_ms}
    return curves(told.records, phase_spans(told.records, Phase(view.phase), ends, until_ms), until_ms)


def _text(value: object) -> str:
    return html.escape(str(value))


def _facts(told: Reported) -> str:
    view, totals = told.view, told.totals
    took = max(0, (told.records[-1].committed_ms if told.records else told.now_ms) - view.created_ms) / 1000
    rebuilt = view.rows_read > totals.snapshot_rows  # from the sink: what the job did before is not in the ledger
    facts = [
        ("snapshot", f"{spell_share(view.share)}, {spell_read(view)}"),
        ("rows/s", spell_rate(view.rows_per_s)),
        *((("changes/s", spell_rate(view.changes_per_s)),) if view.changes_per_s is not None else ()),
        *((("written/s", spell_written(view.written_per_s)),) if view.written_per_s is not None else ()),
        ("lag", spell_lag(view.lag_s)),
        ("pending", spell_pending(view)),
        ("changes applied", f"{totals.changes_read:,}"),
        ("rows written", _written(totals)),
        *((("quarantined", spell_quarantined(view.quarantined)),) if view.quarantined else ()),
        ("epochs", f"{totals.epochs:,}"),
        ("catalog rebuilt" if rebuilt else "created", spell_moment(view.created_ms)),
        (f"{'rebuild' if rebuilt else 'creation'} to last epoch", spell_duration(took)),
        *((("not counted", "changes, rows written and epochs of before the rebuild"),) if rebuilt else ()),
        *((("caught up", spell_moment(view.caught_up_ms)),) if view.caught_up_ms else ()),
        *((("upstream log held", spell_size(view.held_bytes)),) if view.held_bytes is not None else ()),
        *((("spool", spell_spool(view.spool)),) if view.spool is not None else ()),
        *((("verified", spell_verified(view.verified)),) if view.verified is not None else ()),
    ]
    return "\n".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in facts)


def _written(totals: Totals) -> str:
    """`1,234: 1,000 inserted, 200 upserted, 34 deleted`; only the sum where older versions wrote some of them."""
    by_op = (totals.rows_inserted, totals.rows_upserted, totals.rows_deleted)
    told = [
        f"{rows:,} {what}" for rows, what in zip(by_op, ("inserted", "upserted", "deleted"), strict=True) if rows
    ]
    return (
        f"{totals.rows_written:,}: {', '.join(told)}" if told and None not in by_op else f"{totals.rows_written:,}"
    )


def _splits(view: JobView) -> str:
    """A bar for each group of splits, or for each partition."""
    bars = [(group.label, group.share, spell_rows(group, view.rows_estimated)) for group in view.groups]
    for one in view.partitions:
        share = 1.0 if one.target is None else min(1.0, one.offset / max(1, one.target))
        bars.append((f"partition {one.partition}", share, spell_partition(one)))
    if not bars:
        return "<p>The catalog has no splits for this job.</p>"
    return "\n".join(
        f'<div class="split"><span>{_text(label)}</span><i><b style="width:{share * 100:.1f}%"></b></i>'
        f"<span>{_text(said)}</span></div>"
        for label, share, said in bars
    )


def _epochs(records: Sequence[EpochRecord]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in HISTORY)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in history_row(one))}</tr>" for one in records[-LISTED:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


POINTS = 400
"""The most points that a curve has: epochs that share one are summed, or shown by their largest value."""

COMMANDS = 40
"""How many of the newest commands are marked; more would hide the curves."""

LABEL_APART = 0.06  # of the axis: a name of ten letters

PHASE_COLOUR = {Phase.SNAPSHOT: "#e8f1fb", Phase.LOG_STORE: "#fdf3e1", Phase.UPSTREAM: "#edf7ee"}
STYLE = {"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "svg.hashsalt": "report"}
DOTS = {"marker": "o", "markersize": 2.4, "linestyle": "none"}
"""One for each epoch, or for epochs that share a point; no lines, as values in between are not known."""

INK, BLUE, ORANGE, GREEN, GREY = "#1f2933", "#2b6cb0", "#c05621", "#2f855a", "#829ab1"


@dataclass(frozen=True, slots=True)
class Bin:
    """Epochs that share a point on the time axis. rates: per second of the bin."""

    begin: datetime
    end: datetime
    rows_per_s: float
    changes_per_s: float
    inserted_per_s: float
    upserted_per_s: float
    deleted_per_s: float
    lag_s: float | None
    stage_s: float
    commit_s: float


def binned(records: Sequence[EpochRecord], points: int = POINTS, until_ms: int = 0) -> tuple[Bin, ...]:
    """The epochs in at most `points` spans of equal length, up to the later of `until_ms` and the last epoch;
    a span without an epoch has rates of 0."""
    if not records:
        return ()
    first = min(
        record.committed_ms for record in records
    )  # the clock may have been set: the last one need not be the latest
    last = max(until_ms, *(record.committed_ms for record in records))
    span_ms = max(1_000, -(-(last - first + 1) // points))
    held: dict[int, list[EpochRecord]] = {}
    for record in records:
        held.setdefault((record.committed_ms - first) // span_ms, []).append(record)
    return tuple(_bin(first + n * span_ms, span_ms, held.get(n, [])) for n in range((last - first) // span_ms + 1))


def _bin(from_ms: int, span_ms: int, records: Sequence[EpochRecord]) -> Bin:
    lags = [record.lag_ms / 1000 for record in records if record.lag_ms is not None]

    def per_s(rows: Iterable[int | None]) -> float:
        """None: an epoch of an older version, which does not tell."""
        return sum(number or 0 for number in rows) * 1000 / span_ms

    return Bin(
        begin=_at(from_ms),
        end=_at(from_ms + span_ms),
        rows_per_s=per_s(record.snapshot_rows for record in records),
        changes_per_s=per_s(record.changes_read for record in records),
        inserted_per_s=per_s(record.rows_inserted for record in records),
        upserted_per_s=per_s(record.rows_upserted for record in records),
        deleted_per_s=per_s(record.rows_deleted for record in records),
        lag_s=max(lags, default=None),
        stage_s=max((record.stage_ms for record in records), default=0) / 1000,
        commit_s=max((record.commit_ms for record in records), default=0) / 1000,
    )


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase from its begin to its end, by the time of day."""

    phase: Phase
    begin_ms: int
    end_ms: int


def phase_spans(
    records: Sequence[EpochRecord], now: Phase, finished_ms: Mapping[Phase, int | None], until_ms: int
) -> tuple[PhaseSpan, ...]:
    """The phases between the first epoch and `until_ms`, without a gap.

    An epoch tells in which phase it was read; an idle barrier, which leaves no line, can end a phase, too.
    now: the phase that the job is in. finished_ms: the barrier that ended a phase.
    """
    spans: list[PhaseSpan] = []
    runs = [
        (phase, [one.committed_ms for one in run]) for phase, run in groupby(records, key=lambda one: one.phase)
    ]
    begin_ms = runs[0][1][0]
    for (phase, committed), (_, following) in pairwise([*runs, (now, [until_ms])]):
        finished = finished_ms.get(phase)
        if phase != now and finished is not None:
            end_ms = min(following[0], max(committed[-1], finished))
        else:
            end_ms = following[0]
        spans.append(PhaseSpan(phase, begin_ms, max(begin_ms, end_ms)))
        begin_ms = spans[-1].end_ms
    return (*spans, PhaseSpan(now, begin_ms, max(begin_ms, until_ms)))


def curves(records: Sequence[EpochRecord], spans: Sequence[PhaseSpan], until_ms: int) -> str:
    """A figure, as HTML: up to `until_ms`, or to the last epoch if that is later.

    Raises UsageError if the plotting library is not installed.
    """
    bins = binned(records, until_ms=until_ms)
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise UsageError("a report needs matplotlib", shell("pip install 'backfill-cli[report]'")) from exc
    with rc_context(STYLE):
        figure = Figure(figsize=(9.6, 9.6), layout="constrained")
        for axes, (title, unit, draw) in zip(figure.subplots(len(CURVES), sharex=True), CURVES, strict=True):
            draw(axes, bins)
            _phases(axes, spans)
            _commands(axes, records)
            _dressed(axes, title, unit)
        held = io.StringIO()
        figure.savefig(held, format="svg", metadata={"Date": None, "Creator": None})
    text = held.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def _rows(axes: "Axes", bins: Sequence[Bin]) -> None:
    edges = [bins[0].begin, *(one.end for one in bins)]
    axes.stairs([one.rows_per_s for one in bins], edges, fill=True, color=BLUE, alpha=0.75, label="snapshot rows")
    axes.stairs([one.changes_per_s for one in bins], edges, color=ORANGE, lw=1.2, label="changes")


def _ops(axes: "Axes", bins: Sequence[Bin]) -> None:
    edges = [bins[0].begin, *(one.end for one in bins)]
    axes.stairs([one.inserted_per_s for one in bins], edges, color=BLUE, lw=1.2, label="inserted")
    axes.stairs([one.upserted_per_s for one in bins], edges, color=ORANGE, lw=1.2, label="upserted")
    axes.stairs([one.deleted_per_s for one in bins], edges, color=GREEN, lw=1.2, label="deleted")


def _lag(axes: "Axes", bins: Sequence[Bin]) -> None:
    known = [one for one in bins if one.lag_s is not None]
    axes.plot([one.end for one in known], [one.lag_s for one in known], color=GREEN, **DOTS, label="lag")


def _times(axes: "Axes", bins: Sequence[Bin]) -> None:
    busy = [one for one in bins if one.stage_s or one.commit_s]
    when = [one.end for one in busy]
    axes.plot(when, [one.stage_s for one in busy], color=BLUE, **DOTS, label="stage")
    axes.plot(when, [one.commit_s for one in busy], color=ORANGE, **DOTS, label="commit")


CURVES: "tuple[tuple[str, str, Callable[[Axes, Sequence[Bin]], None]], ...]" = (
    ("Read", "per second", _rows),
    ("Written", "per second", _ops),
    ("Lag", "seconds", _lag),
    ("Longest staging and commit of an epoch", "seconds", _times),
)
"""Title, unit, and what draws it."""


def _dressed(axes: "Axes", title: str, unit: str) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    axes.set_title(title, loc="left", fontsize=11, color=INK, pad=20)
    axes.set_ylabel(unit, color=GREY)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,g}")
    locator = AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))
    axes.tick_params(colors=GREY, labelbottom=True)
    axes.grid(axis="y", color="#e4e7eb", lw=0.6)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False, ncols=3, bbox_to_anchor=(1, 1.08), borderaxespad=0)


def _phases(axes: "Axes", spans: Sequence[PhaseSpan]) -> None:
    for span in spans:
        axes.axvspan(_at(span.begin_ms), _at(span.end_ms), color=PHASE_COLOUR[span.phase], lw=0, zorder=0)


def _commands(axes: "Axes", records: Sequence[EpochRecord]) -> None:
    """A line for each command; where several are close together, only the first is named."""
    apart_ms = (records[-1].committed_ms - records[0].committed_ms) * LABEL_APART
    named_ms = -math.inf
    for record in [one for one in records if one.mutations][-COMMANDS:]:
        axes.axvline(_at(record.committed_ms), color=INK, lw=0.8, ls=(0, (3, 2)))
        if record.committed_ms - named_ms < apart_ms:
            continue
        named_ms = record.committed_ms
        place, by = (_at(record.committed_ms), 1.02), ("data", "axes fraction")
        axes.annotate(record.mutations, place, xycoords=by, fontsize=7.5, color=INK, ha="center")


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
