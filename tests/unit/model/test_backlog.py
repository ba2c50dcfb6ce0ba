"""Which way a backlog moves: told apart from noise and bursts."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.backlog import SPANS, Backlog, Trend

APPLIED = 1_000

Noise = Callable[[Random, int], float]
NOISES: dict[str, Noise] = {
    "none": lambda _, __: 1.0,
    "even": lambda random, _: random.uniform(0.5, 1.5),
    "bursts": lambda _, n: 8.0 if n % 8 == 7 else 0.0,
    "steps": lambda _, n: 1.5 if n % 4 < 2 else 0.5,
}
"""Of what arrives before commit n, times the mean, which is 1."""


def trends(ratio: float, noise: str, seed: int = 0, commits: int = SPANS[-1] + 1) -> list[Trend]:
    """After each commit, where `ratio` times what is applied arrives."""
    random, backlog, left, found = Random(seed), Backlog(), APPLIED * 10**4, []
    for n in range(commits):
        left = max(0, left + int(APPLIED * ratio * NOISES[noise](random, n)) - APPLIED)
        backlog = backlog.after(left)
        found.append(backlog.trend)
    return found


@given(st.sampled_from((0.0, 0.2, 0.4, 0.6, 0.75)), st.sampled_from(sorted(NOISES)), st.integers(0, 10**6))
def test_what_becomes_shorter_is_never_said_to_stay(ratio: float, noise: str, seed: int) -> None:
    assert Trend.STAYS not in trends(ratio, noise, seed)


@pytest.mark.parametrize(
    ("noise", "ratio", "within"),
    [
        ("none", 1.0, 12),
        ("none", 1.01, 12),
        ("none", 3.0, 12),
        ("steps", 1.5, 24),
        ("even", 1.6, 48),
        ("bursts", 3.0, 192),
    ],
)
def test_what_does_not_become_shorter_is_said_to_stay(noise: str, ratio: float, within: int) -> None:
    for seed in range(20):
        said = trends(ratio, noise, seed)
        assert Trend.SHRINKS not in said[within:]
        assert said[within] is Trend.STAYS


@pytest.mark.parametrize("ratio", [0.4, 0.6, 0.99])
def test_what_becomes_shorter_steadily_is_seen_after_a_warm_up(ratio: float) -> None:
    said = trends(ratio, "none", commits=249)
    assert set(said[:12]) == {Trend.UNKNOWN}
    assert set(said[12:]) == {Trend.SHRINKS}


def test_a_job_that_falls_behind_for_long_is_seen_to_catch_up_within_a_few_commits() -> None:
    backlog = Backlog()
    for n in range(400):
        backlog = backlog.after(1_000 * n)
    assert backlog.trend is Trend.STAYS
    for n in range(13):
        backlog = backlog.after(400_000 - 1_000 * n)
    assert backlog.trend is Trend.SHRINKS


def test_a_log_of_which_each_commit_leaves_nothing_does_not_stay() -> None:
    backlog = Backlog()
    for _ in range(100):
        backlog = backlog.after(0)
        assert backlog.trend is not Trend.STAYS
