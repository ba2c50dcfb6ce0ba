"""How far a verify has come: shares never decrease within a pass, and the ETA uses the faster of two rates."""

import pytest

from backfill_cli.engine.verify.job import select_weights
from backfill_cli.engine.verify.progress import Steps, Work
from backfill_cli.errors import Transient
from backfill_cli.model.verify import VerifyProgress


def test_work_that_nobody_planned_has_no_share() -> None:
    assert Work(0.0).told(5.0) == (None, None)


def test_passes_weigh_as_much_as_their_tables() -> None:
    work = Work(0.0, total=400.0)
    work.begin(100.0)
    work.at(0.5)
    assert work.told(1.0)[0] == pytest.approx(0.125)
    work.end()
    work.begin(300.0)
    assert work.told(2.0)[0] == pytest.approx(0.25)


def test_a_pass_does_not_go_back_when_spark_begins_another_stage() -> None:
    work = Work(0.0, total=100.0)
    work.begin(100.0)
    work.at(0.8)
    work.at(0.3)
    assert work.told(1.0)[0] == pytest.approx(0.8)


def test_what_is_left_at_least_goes_by_the_faster_of_the_rate_of_all_the_time_and_that_of_late() -> None:
    work = Work(0.0, total=1000.0)
    work.begin(1000.0)
    work.at(0.1)
    work.told(50.0)  # 2 a second so far
    work.at(0.2)
    share, eta = work.told(60.0)  # 10 a second recently, 3.3 since the beginning
    assert share == pytest.approx(0.2)
    assert eta == pytest.approx(800 / 10 * 0.9)


def test_under_a_hundredth_nobody_guesses() -> None:
    work = Work(0.0, total=1000.0)
    work.begin(1000.0)
    work.at(0.009)
    assert work.told(9.0) == (pytest.approx(0.009), None)


def test_a_table_that_differs_is_looked_at_again_and_what_was_told_of_the_whole_does_not_go_back() -> None:
    said: list[VerifyProgress] = []
    steps = Steps("orders", said.append, lambda: 1.0)
    steps.expect([50.0, 50.0])
    steps.table(50.0)
    with steps.work("comparing table a"):
        pass
    with steps.work("table a: it differs", further=True):
        assert (said[-1].doing, said[-1].share, said[-1].alone) == ("table a: it differs", 0.0, True)
    with steps.work("comparing table b"):
        assert (said[-1].share, said[-1].alone) == (pytest.approx(0.5), False)
    steps.doing("the end")
    assert said[-1].share == pytest.approx(1.0)


@pytest.mark.parametrize("again", [[50.0], [50.0, 50.0]], ids=["the first is remembered", "both again"])
def test_a_comparison_that_is_retried_ends_at_the_whole(again: list[float]) -> None:
    said: list[VerifyProgress] = []
    steps = Steps("orders", said.append, lambda: 1.0)
    steps.expect([50.0, 50.0])
    steps.table(50.0)
    with steps.work("comparing table a"):
        pass
    with pytest.raises(Transient), steps.work("comparing table b"):
        raise Transient("a commit in between")
    steps.doing("opening the sink")
    assert (said[-1].share, said[-1].alone) == (pytest.approx(0.5), False)
    steps.expect(again)
    for weight in again:
        steps.table(weight)
        with steps.work("comparing again"):
            pass
    steps.doing("the end")
    assert said[-1].share == pytest.approx(1.0)


def test_a_further_pass_that_fails_is_not_reported_on_as_if_it_went_on() -> None:
    said: list[VerifyProgress] = []
    steps = Steps("orders", said.append, lambda: 1.0)
    steps.expect([50.0])
    with pytest.raises(Transient), steps.work("table a: it differs", further=True):
        raise Transient("a commit in between")
    steps.doing("opening the sink")
    assert (said[-1].share, said[-1].alone) == (pytest.approx(0.0), False)


def test_a_select_weighs_what_it_reads_and_is_part_of_the_whole() -> None:
    """A verify of large tables was at 99 % once these were compared, with seven SELECTs left."""
    reads = {"by_land": ["orders", "kunden"], "best": ["by_land"], "pairs": ["orders", "orders"]}
    weights = {"orders": 30.0, "kunden": 10.0}
    asks = select_weights(reads, weights)
    assert asks == {"by_land": 40, "best": 40, "pairs": 60}
    work = Work(0.0)
    work.expect(sum(weights.values()) + sum(asks.values()))
    told = []
    for at, weight in enumerate((*weights.values(), *asks.values())):
        work.begin(weight)
        work.end()
        told.append(work.told(at + 1.0)[0])
    assert told == [30 / 180, 40 / 180, 80 / 180, 120 / 180, 1]
