"""Jobs as the catalog tells them, for the views' tests."""

import io
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType

from backfill_cli.catalog import JobRow, Lease, SplitGroup
from backfill_cli.errors import command
from backfill_cli.model.checkpoint import EpochRecord, Progress
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit

PROGRESS = Progress(
    phase=Phase.SNAPSHOT,
    epoch=1_763_692_800_123,
    rows_read=84_200,
    rows_total=200_000,
    bytes_read=840,
    bytes_total=2_000,
    splits={"not started": 11, "consuming": 1, "consumed": 8},
    pending_epochs=14,
    lag_ms=1_200,
    rows_per_s=18_204.4,
    eta_s=(6.2, 9.4),
    limited_by=Limit("rate 20000 rows/s", hint=command("throttle orders --rate none"), to="change"),
    token=3,
)

ROW = JobRow(
    name="orders",
    state=JobState.RUNNING,
    why=Limit("a runner holds the job"),
    phase=Phase.SNAPSHOT,
    epoch=1_763_692_800_123,
    control=Control(rate=20_000.0),
    progress=PROGRESS,
    strategy="snapshot",
    until="forever",
    created_ms=1_763_692_700_000,
    caught_up_ms=None,
    lease=Lease(3, "cli", "box", 4711, 1, 2),
    live=True,
)

GROUPS = (SplitGroup("splits 1–4", 4, 4, 40, 40, 1.0), SplitGroup("splits 5–8", 4, 1, 10, 40, 0.25))


def row(**changes: Any) -> JobRow:
    return replace(ROW, **changes)


def progress(**changes: Any) -> Progress:
    return replace(PROGRESS, **changes)


def ledger(lags_ms: list[int | None]) -> list[EpochRecord]:
    return [
        EpochRecord(epoch, epoch - 1, Phase.UPSTREAM, epoch, lag_ms=lag) for epoch, lag in enumerate(lags_ms, 1)
    ]


def drawn(picture: RenderableType, width: int = 80) -> str:
    """What a terminal of that width would show."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    console.print(picture)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
