"""Each derived table equals its SELECT after each epoch: random tables, SELECTs, changes; another database tells.

The expected rows are those of the user's own text in a database of its own, into which Python wrote the rows.
"""

from collections import Counter

import pytest
from derived_oracle import Database, InMemory, run

WORLDS, PARTS = 1500, 4
"""Each has about one derived table and a half, and three epochs: 5,000 comparisons."""


@pytest.fixture(scope="module")
def databases() -> tuple[Database, Database]:
    return InMemory(sink=True), InMemory(sink=False)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_derived_table_equals_its_select_after_each_epoch(
    part: int, databases: tuple[Database, Database]
) -> None:
    came = Counter(run(seed, *databases) for seed in range(part, WORLDS, PARTS))
    assert set(came) <= {"kept", "refused", "duplicate"}, came
    assert came["kept"] > 0.6 * WORLDS / PARTS, came
