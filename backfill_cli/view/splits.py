"""`status JOB --splits`: every part of the snapshot, and every partition, each with how far it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backfill_cli.catalog import SplitRow, wall_clock_ms
from backfill_cli.model.units import spell_clock, spell_size
from backfill_cli.view.console import answer, answer_json


@dataclass(frozen=True, slots=True)
class JobSplits:
    """All splits of a job at its last commit, in the order of the snapshot; then partitions that were added."""

    job: str
    splits: Sequence[SplitRow]


def show_splits(job: str, splits: Sequence[SplitRow], as_json: bool) -> None:
    """Print them to stdout."""
    if as_json:
        answer_json(JobSplits(job, splits))
    elif splits:
        answer("\n".join(_lines(splits)))
    else:
        answer(f"job {job}: its snapshot has no part")


HEAD = ("STATUS", "ROWS READ", "OF", "SIZE", "NEXT", "LAST COMMIT", "TABLE", "PART")
NUMBERS = ("ROWS READ", "OF", "SIZE", "LAST COMMIT")


def _lines(splits: Sequence[SplitRow]) -> Iterator[str]:
    """A line per split. The name of the part, which can be long, comes last."""
    now_ms = wall_clock_ms()
    rows = [HEAD, *(_row(one, now_ms) for one in splits)]
    left_out = {"TABLE"} if len({one.table for one in splits}) == 1 else set()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            text.rjust(width) if name in NUMBERS else text.ljust(width)
            for name, text, width in zip(HEAD, row, widths, strict=True)
            if name not in left_out
        )
        yield "  ".join(cells).rstrip()


def _row(one: SplitRow, now_ms: int) -> tuple[str, ...]:
    return (
        one.status.value,
        f"{one.rows_read:,}",
        "-" if one.rows_total is None else f"{one.rows_total:,}",
        "-" if one.size_bytes is None else spell_size(one.size_bytes),
        "-" if one.next is None else one.next,
        "-" if one.epoch is None else spell_clock(one.epoch, now_ms),
        one.table,
        one.split,
    )
