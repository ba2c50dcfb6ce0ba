"""The last events of a job, for a screen: commands, phases, and commits, of which those in a row are one line."""

from collections.abc import Iterator, Sequence

from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.units import spell_count, spell_duration
from backfill_cli.view.journal import spell_command
from backfill_cli.view.model import JobView, spell_phase
from backfill_cli.view.past import Event, landmarks


def events_of(view: JobView, most: int) -> list[Event]:
    """At most so many, oldest first. The newest commits are told one by one where there is room."""
    commits = [one for one in view.ledger if one.snapshot_rows or one.changes_read or one.rows_written]
    turns = sorted(_turns(view), key=lambda one: one.at_ms)
    since_ms = turns[-1].at_ms if turns else 0
    newest = [one for one in commits if one.committed_ms >= since_ms]
    alone = newest[-max(1, most - len(turns) - 2) :]
    rest = [one for one in commits if one.committed_ms < (alone[0].committed_ms if alone else 1 << 62)]
    told = [*_folded(rest, [one.at_ms for one in turns]), *map(_one, alone), *turns]
    told.sort(key=lambda one: one.at_ms)  # at the same time, what a commit led to is told after it
    return told[-most:]


def _turns(view: JobView) -> Iterator[Event]:
    for one in view.taken:
        yield Event(one.epoch, f"{spell_command(one.command)} by {one.command.by}", one.command.by)
    before = None
    for record in view.ledger:
        if before is not None and record.phase != before.phase:
            yield Event(before.committed_ms, f"phase {spell_phase(record.phase)}")
        before = record
    yield from landmarks(view)


def _one(record: EpochRecord) -> Event:
    return Event(record.committed_ms, f"commit: {_read([record])}, {spell_duration(_took_s(record))}")


def _folded(commits: Sequence[EpochRecord], turns: Sequence[int]) -> Iterator[Event]:
    """Commits with no other event in between are one."""
    run: list[EpochRecord] = []
    for one in commits:
        if run and any(run[-1].committed_ms <= at_ms < one.committed_ms for at_ms in turns):
            yield _run(run)
            run = []
        run.append(one)
    if run:
        yield _run(run)


def _run(commits: Sequence[EpochRecord]) -> Event:
    if len(commits) == 1:
        return _one(commits[0])
    longest = spell_duration(max(map(_took_s, commits)))
    return Event(
        commits[-1].committed_ms,
        f"{spell_count(len(commits), 'commit')}: {_read(commits)}, at most {longest} each",
    )


def _read(commits: Sequence[EpochRecord]) -> str:
    rows, changes = sum(one.snapshot_rows for one in commits), sum(one.changes_read for one in commits)
    told = [spell_count(n, what) for n, what in ((rows, "row"), (changes, "change")) if n]
    return " and ".join(told) or "no rows"


def _took_s(record: EpochRecord) -> float:
    return (record.stage_ms + record.commit_ms) / 1000
