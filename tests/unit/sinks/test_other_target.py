"""What sinks refuse of a target: the hint names another one, which the config takes as it stands."""

import tomllib

import pytest

from backfill_cli.contracts.refusals import other_name, other_target


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("revenue", "revenue_2"),
        ("mart.revenue", "mart.revenue_2"),
        ("day's", "day's_2"),
        ('"S h"."Or\'d"', '"S h"."Or\'d_2"'),
        ("größe", "größe_2"),
    ],
)
def test_another_target_is_called_like_the_table(name: str, other: str) -> None:
    assert other_name(name) == other
    said = str(other_target(name))
    assert tomllib.loads(said.partition(": derived.")[2]) == {"target": other}
