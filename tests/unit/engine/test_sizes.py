"""How many rows the next epoch takes: what staging and what the sink's commits have shown."""

from backfill_cli.engine.loop.pace import FIRST_CHANGES, LEAST_CHANGES, Sizes
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged

TARGET_MS = 5_000


def staged(changes: int, images: int = 0) -> Staged:
    return Staged("a1", changes_read=changes, images=images)


def test_a_log_epoch_is_as_large_as_both_staging_and_commits_let_it() -> None:
    sizes = Sizes(TARGET_MS)
    assert sizes.rows(Phase.LOG_STORE) == FIRST_CHANGES
    sizes.staged(Phase.LOG_STORE, False, staged(FIRST_CHANGES), 0, 500, 0)
    assert sizes.rows(Phase.LOG_STORE) == 4 * FIRST_CHANGES
    sizes.committed(Phase.LOG_STORE, staged(60_000, images=40_000), 10_000)
    assert sizes.rows(Phase.LOG_STORE) == 250_000
    assert sizes.rows(Phase.UPSTREAM) == 250_000


def test_no_commit_makes_an_epoch_smaller_than_the_least() -> None:
    sizes = Sizes(TARGET_MS)
    sizes.committed(Phase.LOG_STORE, staged(FIRST_CHANGES), 10**7)
    assert sizes.rows(Phase.LOG_STORE) == LEAST_CHANGES


def test_commits_of_the_snapshot_and_of_few_changes_say_nothing_about_the_log() -> None:
    sizes = Sizes(TARGET_MS)
    sizes.committed(Phase.SNAPSHOT, staged(FIRST_CHANGES), 10**7)
    sizes.committed(Phase.UPSTREAM, staged(LEAST_CHANGES - 1), 10**7)
    sizes.committed(Phase.UPSTREAM, None, 10**7)
    assert sizes.rows(Phase.UPSTREAM) == FIRST_CHANGES


def test_where_commits_limit_the_size_slow_staging_makes_it_smaller_still() -> None:
    sizes = Sizes(TARGET_MS)
    sizes.staged(Phase.LOG_STORE, False, staged(FIRST_CHANGES), 0, 500, 0)
    sizes.committed(Phase.LOG_STORE, staged(FIRST_CHANGES), 10_000)
    sizes.staged(Phase.LOG_STORE, False, staged(150_000), 0, 20_000, 10_000)
    assert sizes.rows(Phase.LOG_STORE) == 75_000


def test_staging_beside_a_commit_may_take_as_long_up_to_twice_the_target() -> None:
    grown = Sizes(TARGET_MS)
    grown.staged(Phase.LOG_STORE, False, staged(FIRST_CHANGES), 0, 4_000, 0)
    assert grown.rows(Phase.LOG_STORE) == FIRST_CHANGES
    grown.staged(Phase.LOG_STORE, False, staged(FIRST_CHANGES), 0, 4_000, 9_000)
    assert grown.rows(Phase.LOG_STORE) == FIRST_CHANGES * 9 // 4

    shrunk = Sizes(TARGET_MS)
    shrunk.staged(Phase.LOG_STORE, False, staged(FIRST_CHANGES), 0, 20_000, 60_000)
    assert shrunk.rows(Phase.LOG_STORE) == FIRST_CHANGES // 2


def test_where_a_plan_counts_more_changes_than_there_are_sizes_are_as_it_counts() -> None:
    sizes = Sizes(TARGET_MS)
    sizes.staged(Phase.LOG_STORE, False, staged(FIRST_CHANGES // 20), FIRST_CHANGES, 500, 0)
    assert sizes.rows(Phase.LOG_STORE) == 4 * FIRST_CHANGES
    sizes.committed(Phase.LOG_STORE, staged(20_000), 10_000)
    assert sizes.rows(Phase.LOG_STORE) == 4 * FIRST_CHANGES, "50,000 changes, of which the plan counts 20 each"
    sizes.staged(Phase.LOG_STORE, False, staged(20_000), 4 * FIRST_CHANGES, 1_000, 10_000)
    assert sizes.rows(Phase.LOG_STORE) == 20 * 50_000
