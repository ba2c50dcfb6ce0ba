"""How many rows the next epoch takes: what staging and what the sink's commits have shown."""

import pytest

from backfill_cli.engine.loop.pace import FIRST_CHANGES, FIRST_IN_A_LAKE, LEAST_CHANGES, WIDER, Sizes
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged

TARGET_MS = 5_000
Line = tuple[float, float]


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


def test_a_first_epoch_into_a_lake_is_wide_and_its_commit_says_what_the_next_may_be() -> None:
    assert Sizes.of(TARGET_MS, transactional=True).rows(Phase.UPSTREAM) == FIRST_CHANGES
    sizes = Sizes.of(TARGET_MS, transactional=False)
    assert sizes.rows(Phase.LOG_STORE) == FIRST_IN_A_LAKE
    sizes.staged(Phase.LOG_STORE, False, staged(FIRST_IN_A_LAKE), 0, 3 * TARGET_MS, 0)
    sizes.committed(Phase.LOG_STORE, staged(FIRST_IN_A_LAKE), 10 * TARGET_MS)
    assert sizes.rows(Phase.LOG_STORE) < FIRST_IN_A_LAKE


def of_a_snapshot(stage_ms: Line, commit_ms: Line, epochs: int = 12) -> list[int]:
    """How many rows each of these epochs reads. A line: (fixed ms, ms of a row)."""
    sizes, read, before_ms = Sizes(TARGET_MS), list[int](), 0
    for _ in range(epochs):
        rows = sizes.rows(Phase.SNAPSHOT)
        staging, committing = (int(fixed + each * rows) for fixed, each in (stage_ms, commit_ms))
        epoch = Staged("a1", reads=((("t", "0"), rows),))
        sizes.staged(Phase.SNAPSHOT, False, epoch, 0, staging, before_ms)
        sizes.committed(Phase.SNAPSHOT, epoch, committing)
        before_ms = committing
        read.append(rows)
    return read


@pytest.mark.parametrize("fixed_ms", [2_600, 4_000, 8_000, 20_000])
def test_commits_of_a_fixed_cost_do_not_make_a_snapshots_epochs_ever_smaller(fixed_ms: int) -> None:
    """Such as those that keep derived tables, beside a writer: epochs shrank to 1,500 rows, and stayed so."""
    assert min(of_a_snapshot((300, 0.005), (fixed_ms, 0.01))) > 50_000


@pytest.mark.parametrize(("stage_ms", "commit_ms"), [((300, 0.05), (100, 0.02)), ((300, 0.005), (100, 0.05))])
def test_epochs_of_a_snapshot_take_the_target_where_rows_are_what_costs(stage_ms: Line, commit_ms: Line) -> None:
    rows = of_a_snapshot(stage_ms, commit_ms)[3:8]
    each = max(stage_ms[1], commit_ms[1])
    assert all(0.5 * TARGET_MS < each * one < 1.2 * TARGET_MS for one in rows)


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


def caught_up_within(arriving: float, fixed_ms: int, commits: int = 400) -> tuple[int | None, Sizes]:
    """After how many commits 20 million changes are applied, None if they are not; and what the sizes are then.

    arriving: changes per ms; a commit takes `fixed_ms`, and a millisecond for 100 changes.
    """
    sizes, left = Sizes(TARGET_MS), 20_000_000.0
    for n in range(commits):
        rows = sizes.rows(Phase.LOG_STORE)
        if rows >= left:
            return n, sizes
        took_ms = fixed_ms + rows // 100
        left += arriving * took_ms - rows
        sizes.staged(Phase.LOG_STORE, False, staged(rows), 0, rows // 1_000, took_ms)
        sizes.committed(Phase.LOG_STORE, staged(rows), took_ms)
        sizes.left(Phase.LOG_STORE, int(left))
    return None, sizes


@pytest.mark.parametrize(
    ("arriving", "fixed_ms", "wider"), [(30, 2_500, 0), (55, 2_500, 1), (85, 2_500, 2), (70, 5_000, 2)]
)
def test_a_log_that_does_not_become_shorter_gets_wider_epochs_up_to_five_times_the_target(
    arriving: float, fixed_ms: int, wider: int
) -> None:
    """Changes apply at up to 100 a millisecond; with as long for rows as for what is fixed, at half of that."""
    commits, sizes = caught_up_within(arriving, fixed_ms)
    assert commits is not None
    assert (sizes.wider, sizes.not_converging) == (wider, False)
    assert fixed_ms + sizes.rows(Phase.LOG_STORE) // 100 <= WIDER[wider] * TARGET_MS * 1.1


def test_a_log_is_said_not_to_converge_once_epochs_cannot_be_wider() -> None:
    commits, sizes = caught_up_within(90, 5_000)
    assert (commits, sizes.wider, sizes.not_converging) == (None, len(WIDER) - 1, True)
    sizes.left(Phase.UPSTREAM, 0)
    assert (sizes.wider, sizes.not_converging) == (0, False)


def test_by_what_arrives_for_what_is_applied_a_log_is_said_not_to_converge_or_not() -> None:
    """Epochs that cost nothing fixed: 4 or 6 of 10 were once said not to converge at nearly every commit."""
    for arriving in (40, 60):
        commits, sizes = caught_up_within(arriving, 0)
        assert commits is not None
        assert sizes.wider == 0
    assert caught_up_within(110, 0)[1].not_converging
