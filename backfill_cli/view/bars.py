"""How far a job's snapshot is: a bar for all of it, one for each group of splits, the state of each partition."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from backfill_cli.catalog import SplitGroup
from backfill_cli.view.lines import spell_part, spell_partition_state, spell_read
from backfill_cli.view.model import JobView, spell_share
from backfill_cli.view.shapes import CALM, DONE, QUIET, Bar
from backfill_cli.view.text import shown

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
