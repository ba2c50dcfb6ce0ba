"""A job, or two, as one HTML page: where it stands, phases, curves with commands marked, parts, commits, config.

Self-contained: the charts are SVG, there is no script, and nothing is fetched. Its size is bounded: the newest
commits and commands are listed, the others are in the curves and counted.
"""

import html
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template

from backfill_cli.catalog import Run, Taken
from backfill_cli.errors import Hint, command
from backfill_cli.model.checkpoint import EpochRecord, Totals
from backfill_cli.model.job import Phase, Verb
from backfill_cli.model.units import spell_clock, spell_count, spell_duration, spell_moment, spell_rate, spell_size
from backfill_cli.view.curves import Life, figures
from backfill_cli.view.lines import (
    lag_of,
    spell_lag,
    spell_partition,
    spell_pending,
    spell_read,
    spell_rows,
    spell_spool,
    spell_table,
    spell_written,
)
from backfill_cli.view.model import (
    DEAD,
    JobView,
    control_of,
    incomplete_beside,
    is_observed,
    refills_of,
    spell_aside,
    spell_derived,
    spell_dropping,
    spell_not_yet,
    spell_phase,
    spell_quarantined,
    spell_refill,
    spell_refused,
    spell_share,
    spell_skipped,
    spell_verified,
    waits_for_snapshot,
)
from backfill_cli.view.past import PAUSED, Event, Span, events, gaps, lag_line, landmarks, pauses, phase_spans
from backfill_cli.view.reports import HISTORY, history_row

LISTED = 50
FOLDED = 950
"""Lines of a table that are shown, and those that can be unfolded."""

LONG, LONG_FACT = 80, ' class="long"'
"""From so many characters on a fact has a line of its own, not a column."""


@dataclass(frozen=True, slots=True)
class Reported:
    """What a report is made of. records, taken, runs: oldest first. config: TOML, secrets as references."""

    view: JobView
    totals: Totals
    records: Sequence[EpochRecord]
    taken: Sequence[Taken]
    runs: Sequence[Run]
    config: str
    now_ms: int

    @property
    def known_runs(self) -> Sequence[Run]:
        """The newest may have died, and no other has found it yet; one that died may have committed after it last
        renewed its lease."""
        runs = list(self.runs)
        if self.view.state == DEAD and runs and runs[-1].ended_ms is None:
            runs[-1] = replace(runs[-1], ended_ms=self.view.runner.renewed_ms, died=True)
        ends_ms = [*(one.claimed_ms for one in runs[1:]), self.now_ms]
        committed = sorted(one.committed_ms for one in self.records)
        return [_seen(one, committed, end_ms) for one, end_ms in zip(runs, ends_ms, strict=True)] if runs else ()

    @property
    def happened(self) -> Sequence[Event]:
        """All commands and events, oldest first."""
        found = (*events(self.taken, self.known_runs, self.records), *landmarks(self.view))
        return sorted(found, key=lambda one: one.at_ms)

    @property
    def rebuilt(self) -> bool:
        """Whether it goes on from what the sink had: what the job did before is not in the ledger."""
        return self.view.rows_read > self.totals.snapshot_rows


def _seen(run: Run, committed: Sequence[int], end_ms: int) -> Run:
    """Of a run that died, the end is its last commit before `end_ms`, if that is later. committed: sorted."""
    if not run.died or run.ended_ms is None:
        return run
    last_ms = max(committed[: bisect_left(committed, end_ms)][-1:], default=0)
    return replace(run, ended_ms=max(run.ended_ms, last_ms))


def report(*jobs: Reported) -> str:
    """The page, of one job or two side by side."""
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
    life = life_of(told)
    return _template("report_job.html").substitute(
        job=_text(view.name),
        state=_text(view.state),
        stands=_text(standing(told)),
        limit=_limit(view),
        terms=_text(f"strategy {view.strategy}, until {view.until}"),
        facts=_facts(told),
        phases=_phases(told, life),
        curves=figures(life) if told.records else "<p>Nothing has been committed yet.</p>",
        events=_events(told),
        parts=_parts(view),
        commits=_commits(told),
        config=_text(told.config),
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def life_of(told: Reported) -> Life:
    """Up to now while a runner observes the upstream, else up to what happened last."""
    view, records = told.view, told.records
    whole = told.totals.epochs <= len(records)  # else the oldest lines of the ledger are sums of hours by now
    committed = [one.committed_ms for one in records]
    begin_ms = min([view.created_ms, *committed] if whole else committed)
    ends = [one.ended_ms for one in told.known_runs if one.ended_ms is not None]
    until_ms = told.now_ms if view.runner.alive else max([begin_ms, *committed, *ends])
    finished = {Phase.SNAPSHOT: view.snapshot_finished_ms, Phase.LOG_STORE: view.log_store_finished_ms}
    return Life(
        begin_ms,
        until_ms,
        phase_spans(records, Phase(view.phase), finished, begin_ms, until_ms),
        _within((*pauses(told.taken, until_ms), *gaps(told.known_runs)), begin_ms),
        [one for one in told.happened if begin_ms <= one.at_ms <= until_ms],
        records,
        lag_line(records, (until_ms, view.lag_s) if is_observed(view) and view.lag_s is not None else None),
        told.now_ms,
    )


def _within(spans: Iterable[Span], begin_ms: int) -> tuple[Span, ...]:
    return tuple(Span(one.what, max(begin_ms, one.begin_ms), one.end_ms) for one in spans if one.end_ms > begin_ms)


def standing(told: Reported) -> str:
    """The first line: `caught up after 2 m 30 s`, `copying, 42.1%`, `paused since 15:12:22 by me@box`."""
    view = told.view
    caught_up = "" if view.caught_up_ms is None else "caught up"
    if caught_up and not told.rebuilt:
        caught_up += f" after {spell_duration(max(0, (view.caught_up_ms or 0) - view.created_ms) / 1000)}"
    now = _now(told)
    both = [caught_up, now] if view.state in ("running", "done") else [now, caught_up]
    return "; ".join(filter(None, (*both, *_apart(view)))) or str(view.state)


def _apart(view: JobView) -> list[str]:
    """`without b, which is set aside`: the rest of the first line is of the other tables."""
    return [
        f"without {one.table}, which is set aside" if one.refill is None else f"{one.table} is being put back"
        for one in view.aside
    ] + ([newest] if (newest := incomplete_beside(view)) else [])


def _now(told: Reported) -> str:
    """What a job that is caught up does not say."""
    view = told.view
    if not view.created or view.state == "failed":
        return view.limited_by.said
    if view.state == "running":
        return _at_work(view)
    if view.state == "paused":
        control = control_of(view)
        since_ms = control.since_ms
        since = f" since {spell_clock(since_ms, told.now_ms)}" if since_ms else ""
        return f"paused{since} by {control.pauser}"
    if view.state == "stopped":
        return _stopped(told)
    if view.state == DEAD:
        seen = told.known_runs[-1].ended_ms if told.known_runs else view.runner.renewed_ms
        return "the runner died" + ("" if seen is None else f", last seen at {spell_clock(seen, told.now_ms)}")
    return "" if view.state == "done" else str(view.state)


def _stopped(told: Reported) -> str:
    """By whom, if a command stopped the last run, or the job after its last runner had died."""
    run = told.runs[-1] if told.runs else None
    last = told.taken[-1] if told.taken else None
    by_command = last is not None and last.command.verb is Verb.STOP and (not run or last.epoch >= run.claimed_ms)
    stop = last if by_command else None
    at_ms = run.ended_ms if run else None
    at_ms = stop.epoch if stop and at_ms is None else at_ms
    by = f" by {stop.command.by}" if stop else ""
    return f"stopped{by}" + ("" if at_ms is None else f" at {spell_clock(at_ms, told.now_ms)}")


def _at_work(view: JobView) -> str:
    if view.phase == "snapshot":
        return f"copying, {f'{view.rows_read:,} rows' if view.share is None else spell_share(view.share)}"
    if view.caught_up_ms is None:
        return f"catching up, lag {spell_lag(view.lag_s)}"
    if view.pending_epochs == 0:
        return "" if any(one.refill is not None for one in view.aside) else "up to date"
    return f"lag {spell_lag(view.lag_s)}"


def _limit(view: JobView) -> str:
    """What holds the job up, where the first line does not say it, and what to type."""
    limit = view.limited_by
    said = view.state in ("paused", "stopped", "done", "failed", DEAD) or not view.created
    name = "" if limit.kind == "ended" else f"{limit.kind} "
    lines = [] if said else [f"<p>{_text(f'{name}{limit.text}')}</p>"]
    if limit.hint:
        lines.append(f'<p class="do">to {_text(limit.to)}: {_hint(limit.hint)}</p>')
    return "\n".join(lines)


def _hint(hint: Hint) -> str:
    return "".join(_text(one) if isinstance(one, str) else f"<code>{_text(one)}</code>" for one in hint.said)


def _facts(told: Reported) -> str:
    view, totals, rebuilt = told.view, told.totals, told.rebuilt
    verified = view.verified and replace(view.verified, age_s=None)  # the page is read later
    took = [max(0, one.committed_ms - view.created_ms) / 1000 for one in told.records[-1:]]
    facts = [
        ("snapshot", f"{spell_share(view.share)}, {spell_read(view)}"),
        *((("reads", spell_rate(view.rows_per_s)),) if view.rows_per_s is not None else ()),
        *((("follows", spell_rate(view.changes_per_s, "changes")),) if view.changes_per_s is not None else ()),
        *((("writes", spell_written(view.written_per_s)),) if view.written_per_s is not None else ()),
        ("lag" if is_observed(view) or waits_for_snapshot(view) else "lag, at most", lag_of(view)),
        *((("pending", spell_pending(view)),) if view.pending_epochs is not None else ()),
        ("changes applied", f"{totals.changes_read:,}"),
        ("rows written", _written(totals)),
        *((("quarantined", spell_quarantined(view.quarantined)),) if view.quarantined else ()),
        *((("skipped", spell_skipped(view.skipped)),) if view.skipped else ()),
        ("commits", f"{totals.commits:,}"),
        ("catalog rebuilt" if rebuilt else "created", spell_moment(view.created_ms)),
        *((f"{'rebuild' if rebuilt else 'creation'} to last commit", spell_duration(one)) for one in took),
        *((("not counted", "changes, rows written and commits of before the rebuild"),) if rebuilt else ()),
        *((("caught up", spell_moment(view.caught_up_ms)),) if view.caught_up_ms else ()),
        *((("upstream log held", spell_size(view.held_bytes)),) if view.held_bytes is not None else ()),
        *((("spool", spell_spool(view.spool)),) if view.spool is not None else ()),
        *((("consistent", spell_not_yet(view)),) if view.converging and view.phase != "snapshot" else ()),
        *(("derived", spell_derived(one, view.runner.alive)) for one in view.derived),
        *(("set aside", spell_aside(one)) for one in view.aside),
        *((("refused", spell_refused(view.refused)),) if view.refused is not None else ()),
        *(("refill", spell_refill(one)) for one in refills_of(view)),
        *((("to be dropped", spell_dropping(view)),) if view.dropping else ()),
        *((("verified", spell_verified(verified)),) if verified is not None else ()),
    ]
    return "\n".join(
        f'<div{LONG_FACT * (len(value) > LONG)}><dt>{_text(name)}</dt><dd dir="auto">{_text(value)}</dd></div>'
        for name, value in facts
    )


def _written(totals: Totals) -> str:
    """`1,234: 1,000 inserted, 200 upserted, 34 deleted`; only the sum where older versions wrote some of them."""
    by_op = (totals.rows_inserted, totals.rows_upserted, totals.rows_deleted)
    told = [
        f"{rows:,} {what}" for rows, what in zip(by_op, ("inserted", "upserted", "deleted"), strict=True) if rows
    ]
    return (
        f"{totals.rows_written:,}: {', '.join(told)}" if told and None not in by_op else f"{totals.rows_written:,}"
    )


PHASES = ("Phase", "Began", "Took", "Paused", "Without a runner")


def _phases(told: Reported, life: Life) -> str:
    """When each phase was, and how much of it the job was not at work."""

    def held(phase: Span, paused: bool) -> str:
        ms = sum(phase.shared_ms(one) for one in life.held_up if (one.what == PAUSED) == paused)
        return spell_duration(ms / 1000) if ms else "-"

    rows = [
        (
            spell_phase(phase.what),
            spell_clock(phase.begin_ms, told.now_ms),
            spell_duration((phase.end_ms - phase.begin_ms) / 1000),
            held(phase, paused=True),
            held(phase, paused=False),
        )
        for phase in life.phases
        if phase.end_ms > phase.begin_ms or len(life.phases) == 1
    ]
    return _table("Phases", PHASES, rows)


def _events(told: Reported) -> str:
    rows = [(spell_clock(one.at_ms, told.now_ms), one.what, one.by or "-") for one in reversed(told.happened)]
    if not rows:
        return "<p>No command has been given.</p>"
    return _folded("Commands and events", ("Time", "What", "By"), rows, len(rows), Hint())


def _parts(view: JobView) -> str:
    """A bar for each group of splits, or for each partition."""
    bars = [(group.label, group.share, spell_rows(group, view.rows_estimated)) for group in view.groups]
    bars += [(f"table {one.table}", one.live / one.partitions, spell_table(one)) for one in view.tables]
    for one in view.partitions if not view.tables else ():
        share = 1.0 if one.target is None else min(1.0, one.offset / max(1, one.target))
        bars.append((f"partition {one.partition}", share, spell_partition(one)))
    if not bars:
        return "<p>The catalog has no parts of this job.</p>"
    told = [
        f'<div class="part"><bdi>{_text(label)}</bdi><i><b style="width:{share * 100:.1f}%"></b></i>'
        f"<bdi>{_text(said)}</bdi></div>"
        for label, share, said in bars
    ]
    text, rest, left = "\n".join(told[:LISTED]), told[LISTED : LISTED + FOLDED], len(told) - LISTED - FOLDED
    if rest:
        unfolded = "\n".join(rest)
        text += f"<details><summary>{len(rest):,} more</summary>{unfolded}</details>"
    return text + (f"<p>{spell_count(left, 'part')} after these</p>" if left > 0 else "")


def _commits(told: Reported) -> str:
    """The newest first."""
    records = told.records[: -LISTED - FOLDED - 1 : -1]
    if not records:
        return "<p>Nothing has been committed yet.</p>"
    last = command(f"history {told.view.name} --last 10000")
    rows = [history_row(one, told.now_ms) for one in records]
    return _folded("Commits", [name.capitalize() for name in HISTORY], rows, told.totals.epochs, last)


def _folded(about: str, head: Sequence[str], rows: Sequence[Sequence[str]], count: int, whole: Hint) -> str:
    """A table: its first lines, then others to unfold, then how many there are of which none is shown.

    count: of all. whole: what shows more.
    """
    text = _table(about, head, rows[:LISTED])
    rest, left = rows[LISTED : LISTED + FOLDED], count - min(len(rows), LISTED + FOLDED)
    if rest:
        earlier = f"{len(rest):,} earlier"
        text += f"<details><summary>{earlier}</summary>{_table(f'{about}, {earlier}', head, rest)}</details>"
    if left > 0:
        text += f"<p>{spell_count(left, 'line')} before these{f': {_hint(whole)}' if whole else ''}</p>"
    return text


def _table(about: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """It scrolls in itself, also by the keyboard, where it is too wide."""
    first = "".join(f'<th scope="col">{_text(name)}</th>' for name in head)
    body = "\n".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide" role="region" aria-label="{_text(about)}" tabindex="0"><table><thead><tr>{first}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>"
    )
