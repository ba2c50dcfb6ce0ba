"""Each derived table equals its SELECT after each epoch: random tables, SELECTs, changes; another database tells.

The expected rows are those of the user's own text in a database of its own, into which Python wrote the rows.
"""

from collections import Counter

import pytest
from derived_oracle import VIEWS, Database, InMemory, run

CASES, MORE = 4_200, 50_000
"""SELECTs, ten of them over the tables of one world, each through an epoch or two. With the 400 below and those of
tests/postgres/test_derived_postgres.py, each run has 5,000.
"""
PARTS = 10
"""So many tests, which several processes can share."""
WORLDS = CASES // VIEWS
WHOLE = 40
"""Worlds of as many SELECTs, of which some are refreshed in full."""


@pytest.fixture(scope="module")
def databases() -> tuple[Database, Database]:
    return InMemory(sink=True), InMemory(sink=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_derived_table_equals_its_select_after_each_epoch(
    part: int, databases: tuple[Database, Database]
) -> None:
    size = WORLDS // PARTS
    tried(range(part * size, (part + 1) * size), databases)


@pytest.mark.long
def test_so_it_does_in_many_worlds(databases: tuple[Database, Database]) -> None:
    tried(range(WORLDS, WORLDS + MORE // VIEWS), databases)


def tried(seeds: range, databases: tuple[Database, Database]) -> None:
    came: Counter[str] = Counter()
    for seed in seeds:
        came += run(seed, *databases)
    assert came["kept"] > 0.75 * len(seeds) * VIEWS, came
    assert came["added"] > 0.03 * len(seeds) * VIEWS, came
    assert came["taken"] > 0.1 * len(seeds) * VIEWS, came


def test_those_that_are_refreshed_whole_equal_their_selects_too(databases: tuple[Database, Database]) -> None:
    came: Counter[str] = Counter()
    for seed in range(WHOLE):
        came += run(seed, *databases, refreshed=0.6)
    assert came["kept"] > 0.5 * WHOLE * VIEWS, came
