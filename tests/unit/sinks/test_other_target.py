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


@pytest.mark.parametrize(
    ("name", "refused", "other"),
    [
        ("q", "main.q", "q_2"),
        ("q", "main.q_2", "q_3"),
        ("q", '"main"."Q_9"', "q_10"),
        ("mart.q", "mart.q_2", "mart.q_3"),
        ("q", "`lake`.`q_2`", "q_3"),
        ('"S h"."Or\'d"', '"S h"."Or\'d_2"', '"S h"."Or\'d_3"'),
        ("q", "of_q_2", "q_2"),
        ("q", "revenue_2024", "q_2"),
        ("a.c", "a_c_2", "a.c_2"),
        ("q_2", "q_2", "q_2_2"),
        ("q", "q_" + "9" * 5000, "q_2"),
    ],
)
def test_the_next_one_is_named_where_that_is_taken_too(name: str, refused: str, other: str) -> None:
    assert other_name(name, refused) == other
    assert tomllib.loads(str(other_target(name, refused)).partition(": derived.")[2]) == {"target": other}
