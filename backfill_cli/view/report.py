"""A job as one HTML page: how far it is, curves over time with commands marked, splits, config. Or two.

Self-contained: the curves are SVG drawn by matplotlib, there is no script, and nothing is fetched.
"""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template

from backfill_cli.catalog.moments import spell_moment
from backfill_cli.model.checkpoint import EpochRecord, Totals
from backfill_cli.model.job import Phase
from backfill_cli.model.units import spell_duration, spell_size
from backfill_cli.view.curves import curves, phase_spans
from backfill_cli.view.history import HEAD, history_row
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
from backfill_cli.view.model import JobView, spell_share
from backfill_cli.view.quarantine import spell_quarantined
from backfill_cli.view.verified import spell_verified

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
    head = "".join(f"<th>{_text(name)}</th>" for name in HEAD)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in history_row(one))}</tr>" for one in records[-LISTED:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
