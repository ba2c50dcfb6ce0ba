"""Where in a table a job's rows are: in the table's own branch, or in the job's branch until it is cut over.

The cutover itself writes no record: the table's own branch moves to the job's, in one change by the table's
catalog, and from then on its ancestors have the marker of the job's claim.
"""

from typing import TYPE_CHECKING

from backfill_cli.lake.iceberg.metadata import Held
from backfill_cli.lake.state import Claim

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

MAIN = "main"
PREFIX = "backfill."


class Head(Held):
    """A table as its job sees it: `main` is the newest snapshot with the job's rows.

    target: the branch that a commit moves. begun: whether that branch exists; if not, `main` is the snapshot that
    it will be created from.
    """

    def __init__(self, held: Held, target: str = MAIN) -> None:
        super().__init__(held.file, held.told, held.io)
        self.table_main = held.main
        self.target = target
        number = None if target == MAIN else held.refs.get(target)
        self.begun = target == MAIN or number is not None
        self._newest = held.main if number is None else held.snapshot(number)

    @property
    def main(self) -> "Snapshot | None":
        return self._newest

    @property
    def is_live(self) -> bool:
        """Whether queries of the table see the job's rows."""
        return self.target == MAIN


def head_of(held: Held, branch: str | None, claim: Claim | None) -> Head:
    """The table as its job sees it. branch: the job's, None if the job writes to the table's own branch."""
    if branch is None or (claim is not None and _tells(held, claim)):
        return Head(held)
    return Head(held, branch)


def _tells(held: Held, claim: Claim) -> bool:
    """Whether the table's own branch has a marker of this claim."""
    return any(told_by(one).get(f"{PREFIX}claim") == claim.id for one in held.ancestors(held.main))


def told_by(snapshot: "Snapshot | None") -> "dict[str, str]":
    """The properties of a snapshot; empty for None."""
    return {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
