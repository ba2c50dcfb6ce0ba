"""Makes a job's branch the table's own: one `fast_forward` per table, which fails if another writer moved it.

After a crash at any point the same command completes the work: the table itself shows which of the two branches
it is at, see `markers`, and the record beside it is written in the order that this needs. What other writers
committed meanwhile is not lost silently: a commit is the job's if its last snapshot has the job's marker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table.snapshots import Snapshot

from backfill_cli.contracts import Swap
from backfill_cli.contracts.refusals import gone, no_record
from backfill_cli.errors import START_OVER, Hint, UsageError, command, in_config
from backfill_cli.failpoint import hit
from backfill_cli.lake.iceberg.edge import Moved, run
from backfill_cli.lake.iceberg.metadata import summary_of
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.state import Claim, Cut, JobRecord, JobState
from backfill_cli.model.cutover import Found, Live, Lives
from backfill_cli.model.units import spell_count
from backfill_cli.sinks.iceberg.markers import MAIN, PREFIX, Head
from backfill_cli.spark.api import SparkSession


@dataclass(frozen=True, slots=True)
class Cutting:
    """Cuts the tables of one job over and back. branch: the sink's option. held: the current head of a claim."""

    state: JobState
    branch: str | None
    held: Callable[[Claim], Head | None]
    spark: Callable[[], SparkSession]

    def live(self, swaps: Sequence[Swap]) -> Lives:
        """See contracts.Cutover."""
        if self.branch is None:
            raise UsageError(
                "the job writes to the tables' own branches: queries of the tables already see its rows",
                in_config(
                    'to fill a table beside its existing rows, set sink.branch = "backfill" in a new job\'s config'
                ),
            )
        record = self._record()
        return {swap.table.name: self._live(record, swap) for swap in swaps}

    def _live(self, record: JobRecord, swap: Swap) -> Live:
        claim, held = self._claimed(record, swap)
        cut = record.cuts.get(swap.table.name)
        if held.is_live:
            made = f"at the job's branch {self.branch}"
            if cut is None:
                return Live(Found.OURS, made=made)
            since = written_since(record.job, claim, held, cut)
            return Live(Found.OURS, cut.kept, cut.since_ms, cut.until_ms, moved=since, made=made)
        return Live(Found.TABLE, moved=moved(Place.of(claim.place), held))

    def cut_over(self, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        for swap in swaps:
            claim, held = self._claimed(self._record(), swap)
            if not held.is_live:
                self._forward(swap, claim, held, epoch, now_ms, until_ms)
            self._own(swap.table.name, None)
            if self.branch in held.refs:
                self._alter(claim, f"DROP BRANCH IF EXISTS {self.branch}")

    def note_live(self, claims: Mapping[str, Claim]) -> None:
        """The job's record notes which tables are cut over: the snapshots that show it can expire."""
        for table, claim in claims.items():
            if claim.branch is not None and (held := self.held(claim)) is not None and held.is_live:
                self._own(table, None)

    def _forward(self, swap: Swap, claim: Claim, held: Head, epoch: int, now_ms: int, until_ms: int) -> None:
        place = Place.of(claim.place)
        if (theirs := moved(place, held)) is not None or held.table_main is None:
            raise UsageError(*(theirs or (f"{place} has no snapshot", START_OVER)))
        kept = f"backfill_before_{epoch}"
        self._alter(claim, f"CREATE OR REPLACE TAG {kept} AS OF VERSION {held.table_main.snapshot_id}")
        self._note(swap, Cut(kept, held.target, now_ms, until_ms))
        hit("sink-before-cutover")
        try:
            self._call(place, "fast_forward", f"branch => '{MAIN}', to => '{held.target}'")
        except Moved as exc:
            self._note(swap, None)
            self._alter(claim, f"DROP TAG IF EXISTS {kept}")
            raise UsageError(
                f"{place}: another writer has just written to it: {exc.message}",
                command(f"cutover {self.state.job} --dry-run"),
            ) from exc
        hit("sink-after-cutover")

    def reverse(self, swaps: Sequence[Swap]) -> None:
        for swap in swaps:
            record = self._record()
            claim, held = self._claimed(record, swap)
            if not held.is_live:
                continue
            cut = record.cuts.get(swap.table.name)
            if cut is None or cut.kept not in held.refs or held.main is None:
                raise UsageError(
                    f"{claim.place}: the tag {cut.kept if cut else 'backfill_before_…'} of its state before the "
                    "cutover is gone: the cutover cannot be reversed",
                    "leave it as it is",
                )
            if (since := written_since(record.job, claim, held, cut)) is not None:
                raise UsageError(*since)
            # The branch then has what the job wrote since, and the job continues there.
            self._alter(claim, f"CREATE OR REPLACE BRANCH {cut.branch} AS OF VERSION {held.main.snapshot_id}")
            self._own(swap.table.name, cut.branch)
            hit("sink-before-reverse")
            self._call(Place.of(claim.place), "set_current_snapshot", f"ref => '{cut.kept}'")
            self._require_none_lost(swap, claim, cut, held.main.snapshot_id)
            hit("sink-after-reverse")
            self._note(swap, None)
            self._alter(claim, f"DROP TAG IF EXISTS {cut.kept}")

    def _require_none_lost(self, swap: Swap, claim: Claim, cut: Cut, newest: int) -> None:
        """The table was at `newest` when it was put back; no catalog can make that a condition of the change.

        Otherwise raises UsageError, and the table is moved forward again; if another writer has written to it once
        more, their earlier snapshot is kept in the job's branch instead.
        """
        place, held = Place.of(claim.place), self.held(claim)
        was = None if held is None else left_by(held, cut.kept)
        if was is None or was == newest:
            return
        self._alter(claim, f"CREATE OR REPLACE BRANCH {cut.branch} AS OF VERSION {was}")
        try:
            self._call(place, "fast_forward", f"branch => '{MAIN}', to => '{cut.branch}'")
        except Moved as exc:
            raise UsageError(
                f"{place}: others wrote to it just before and after it was put back: their snapshot {was} is in "
                f"the job's branch {cut.branch!r}, what they wrote later is in the table",
                "write into the table what it lacks of these rows: " + place.in_spark(place.rows_at(was)),
            ) from exc
        self._own(swap.table.name, None)
        self._alter(claim, f"DROP BRANCH IF EXISTS {cut.branch}")
        raise UsageError(
            f"{place}: others have just written to it, snapshot {was}: it stays cut over, with their rows",
            command(f"cutover {self._record().job} --reverse") + "   # again: it says what to do with them",
        )

    def _record(self) -> JobRecord:
        return self.state.record() or JobRecord(self.state.job)

    def _claimed(self, record: JobRecord, swap: Swap) -> tuple[Claim, Head]:
        claim = record.claims.get(swap.table.name)
        if claim is None:
            raise no_record(record.job)
        if (held := self.held(claim)) is None:
            raise gone(claim.place, record.job)
        return claim, held

    def _own(self, name: str, branch: str | None) -> None:
        """The record sends the job's commits to this branch, unless the table shows that it is cut over."""

        def owned(record: JobRecord) -> JobRecord:
            return replace(record, claims={**record.claims, name: replace(record.claims[name], branch=branch)})

        self._change(name, owned)

    def _note(self, swap: Swap, cut: Cut | None) -> None:
        def noted(record: JobRecord) -> JobRecord:
            others = {name: one for name, one in record.cuts.items() if name != swap.table.name}
            return replace(record, cuts=others if cut is None else {**others, swap.table.name: cut})

        self._change(swap.table.name, noted)

    def _change(self, name: str, act: Callable[[JobRecord], JobRecord]) -> None:
        def changed(record: JobRecord) -> JobRecord:
            if name not in record.claims:
                raise no_record(record.job)
            return act(record)

        self.state.change(changed)

    def _alter(self, claim: Claim, what: str) -> None:
        place = Place.of(claim.place)
        run(self.spark(), place, f"ALTER TABLE {place.sql} {what}")

    def _call(self, place: Place, procedure: str, arguments: str) -> None:
        run(self.spark(), place, place.procedure(procedure, arguments))


def moved(place: Place, held: Head) -> tuple[str, Hint] | None:
    """What others committed to the table's own branch since the job's was created, and how to undo it.

    (message, hint) of an error; None if they committed nothing.
    """
    own = {one.snapshot_id for one in held.ancestors(held.main)}
    theirs: list[Snapshot] = []
    for one in held.ancestors(held.table_main):
        if one.snapshot_id in own:
            break
        theirs.append(one)
    if not theirs:
        return None
    base = theirs[-1].parent_snapshot_id
    call = place.in_spark(place.call("rollback_to_snapshot", f"snapshot_id => {base}"))
    back = "if their rows are not needed: " + call + "; else "
    return (
        f"{place}: others committed {spell_count(len(theirs), 'snapshot')} to it since the job's branch "
        f"{held.target!r} was created from it, the newest is {theirs[0].snapshot_id}",
        (back if base is not None else "") + START_OVER + ", while nobody else writes to it",
    )


def written_since(job: str, claim: Claim, held: Head, cut: Cut) -> tuple[str, Hint] | None:
    """What was committed without the job's marker since the table was cut over, and what to do about it.

    (message, hint) of an error; None if there is nothing. Compactions do not count, as they change no row. A
    commit of the job that took several snapshots does count: only the last of them has the marker.
    """
    place, epoch = Place.of(claim.place), int(cut.kept.rsplit("_", 1)[1])
    by_hand = (
        "leave it cut over; or if that is not needed, forget the job and go back by hand: "
        + command(f"drop {job} --confirm {job}")
        + "; "
        + place.in_spark(place.call("set_current_snapshot", f"ref => '{cut.kept}'"))
    )
    theirs: list[Snapshot] = []
    for one in held.ancestors(held.main):
        told = summary_of(one)
        if told.get(f"{PREFIX}claim") != claim.id:
            if one.summary is None or one.summary.operation.value != "replace":
                theirs.append(one)
        elif int(told[f"{PREFIX}epoch"]) <= epoch:
            break
    else:
        return (
            f"{place}: the snapshots since it was cut over have expired: whether others wrote to it is unknown",
            by_hand,
        )
    if not theirs:
        return None
    return (
        f"{place}: others committed {spell_count(len(theirs), 'snapshot')} to it since it was cut over, the "
        f"newest is {theirs[0].snapshot_id}: the table would lose them",
        by_hand,
    )


def left_by(held: Head, kept: str) -> int | None:
    """The snapshot that the table was at before it was set back to this tag; None if unknown."""
    at = [entry.snapshot_id for entry in held.told.snapshot_log]
    back = held.refs.get(kept)
    last = max((index for index, number in enumerate(at) if number == back), default=0)
    return at[last - 1] if last else None
