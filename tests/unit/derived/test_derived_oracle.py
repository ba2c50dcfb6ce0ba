"""Each derived table equals its SELECT after each epoch: random tables, SELECTs, changes; another database tells.

The expected rows are those of the user's own text in a database of its own, into which Python wrote the rows.
"""

from collections import Counter

import pytest
from derived_oracle import Database, InMemory, run

WORLDS, MORE = 400, 5000
"""Each has about one derived table and a half, and three epochs."""


@pytest.fixture(scope="module")
def databases() -> tuple[Database, Database]:
    return InMemory(sink=True), InMemory(sink=False)


def test_a_derived_table_equals_its_select_after_each_epoch(databases: tuple[Database, Database]) -> None:
    tried(range(WORLDS), databases)


@pytest.mark.long
def test_so_it_does_in_many_worlds(databases: tuple[Database, Database]) -> None:
    tried(range(WORLDS, WORLDS + MORE), databases)


def tried(seeds: range, databases: tuple[Database, Database]) -> None:
    came = Counter(run(seed, *databases) for seed in seeds)
    assert set(came) <= {"kept", "refused", "duplicate"}, came
    assert came["kept"] > 0.6 * len(seeds), came
