"""Refills in the catalog: asked for, taken at a barrier, ended by a command, a failure or a mark."""

from dataclasses import replace

from catalog_builders import Clock, checkpoint

from backfill_cli.catalog import Catalog
from backfill_cli.errors import command
from backfill_cli.model.change import Change
from backfill_cli.model.checkpoint import EpochRecord
from backfill_cli.model.job import Barrier, Control, JobState, Phase, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.refill import Extent, Refill, RefillPart, RefillState

RANGE = Extent(first="1000", last="2000")


def only(catalog: Catalog) -> Refill:
    (found,) = catalog.job("orders").refills
    return found


def test_without_a_runner_the_refill_is_taken_at_once_and_waits_for_the_next_one(catalog: Catalog) -> None:
    number, posted = catalog.refill("orders", "orders", RANGE, "me@box", 7)
    assert only(catalog) == Refill(number, "orders", RANGE, "me@box", 7, since=catalog.taken("orders", posted))
    assert only(catalog).since is not None
    assert catalog.ledger("orders", 1)[0].mutations == "refill"


def test_a_runner_is_told_of_a_refill_by_the_barrier_that_takes_it(catalog: Catalog) -> None:
    with catalog.claim("orders", "test", 5) as claim:
        catalog.refill("orders", "orders", RANGE, "me@box", 7)
        assert claim.store.refills() == ()
        (waiting,) = claim.store.commands()
        barrier = Barrier.taking((waiting,), 0, 100, Control())
        record = EpochRecord(barrier.epoch, 0, Phase.UPSTREAM, 100, mutations=barrier.mutations.verbs)
        claim.store.take((waiting,), Control(), JobState.STARTING, record)
        (refill,) = claim.store.refills()
        assert (refill.since, refill.state, refill.extent) == (100, RefillState.WAITING, RANGE)


def test_a_cancelled_refill_leaves_room_for_another(catalog: Catalog) -> None:
    number, _ = catalog.refill("orders", "orders", Extent(), "me@box", 7)
    catalog.post("orders", Verb.CANCEL_REFILL, None, "you@box", 9, payload=str(number))
    assert only(catalog).state is RefillState.CANCELLED
    assert only(catalog).why.text.startswith("cancelled by you@box; updates of rows that the sink lacked may ")
    assert str(only(catalog).why).endswith("; to have all rows: backfill refill orders --table orders")
    catalog.refill("orders", "orders", RANGE, "me@box", 10)
    assert [one.pending for one in catalog.job("orders").refills] == [False, True]


def test_a_cancelled_refill_of_a_part_leaves_what_was_there_before(catalog: Catalog) -> None:
    number, _ = catalog.refill("orders", "orders", RANGE, "me@box", 7)
    catalog.post("orders", Verb.CANCEL_REFILL, None, "you@box", 9, payload=str(number))
    assert (only(catalog).state, only(catalog).why) == (RefillState.CANCELLED, Limit("cancelled by you@box"))


def test_what_an_epoch_applies_of_a_refill_counts_once_it_is_marked(catalog: Catalog, clock: Clock) -> None:
    number, _ = catalog.refill("orders", "orders", RANGE, "me@box", 7)
    with catalog.claim("orders", "test", 5) as claim:
        parts = RefillPart(number, 3, 2, 1, False), RefillPart(number, 1, 0, 0, True)
        for epoch, part in zip((1_000, 2_000), parts, strict=True):
            at = replace(checkpoint(epoch), plan=EpochPlan(refill=part), staged=Staged("a"))
            claim.store.prepare(at, None, None)
            assert only(catalog).epoch != epoch
            claim.store.mark(EpochRecord(epoch, 0, Phase.UPSTREAM, epoch + 5), None)
            assert only(catalog).epoch == epoch
        claim.store.note_refill(replace(only(catalog), state=RefillState.FAILED, why=Limit("too late")))
        assert claim.store.refills() == ()
    found = only(catalog)
    assert (found.state, found.inserted, found.replaced, found.removed) == (RefillState.DONE, 4, 2, 1)
    assert (found.ended_ms, found.why) == (2_005, Limit(""))


def test_a_failed_refill_keeps_its_reason_and_what_to_type(catalog: Catalog) -> None:
    catalog.refill("orders", "orders", RANGE, "me@box", 7)
    why = Limit("the log is gone", hint=command("status orders"))
    with catalog.claim("orders", "test", 5) as claim:
        claim.store.note_refill(replace(only(catalog), state=RefillState.FAILED, ended_ms=9, why=why))
    assert (only(catalog).state, only(catalog).why) == (RefillState.FAILED, why)


def test_a_job_that_is_dropped_leaves_no_refill(catalog: Catalog) -> None:
    catalog.refill("orders", "orders", RANGE, "me@box", 7)
    catalog.drop("orders")
    assert catalog.refills.pending("orders") == ()


def test_a_refill_ends_as_its_table_leaves_the_job(catalog: Catalog) -> None:
    before = catalog.definition("orders")
    with catalog.claim("orders", "test", 5) as claim:
        catalog.refill("orders", "orders", RANGE, "me@box", 7)
        change = Change("{}", table="orders")
        catalog.post("orders", Verb.REMOVE, None, "me@box", 8, payload=change.stored)
        _, remove = claim.store.commands()
        record = EpochRecord(100, 0, Phase.UPSTREAM, 100, mutations="remove")
        claim.store.redefined(remove, record, before, replace(before, tables=()), Control())
        assert only(catalog).state is RefillState.CANCELLED
        assert only(catalog).why == Limit("the table left the job")
        (refill,) = claim.store.commands()
        claim.store.take((refill,), Control(), JobState.STARTING, replace(record, epoch=200))
        assert claim.store.refills() == ()


def test_a_refill_that_was_posted_as_its_table_left_is_none(catalog: Catalog) -> None:
    number, _ = catalog.refill("orders", "gone", RANGE, "me@box", 7)
    found = catalog.refills.of("orders", number)
    assert found is not None
    assert (found.state, found.why) == (RefillState.CANCELLED, Limit("the table left the job"))
