"""Expressions are built once per driver, and never handed to another one."""

import pytest
from pyspark import SparkContext

from backfill_cli.spark.reuse import KEPT, reused


class Driver:
    """Stands for a Spark context."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(SparkContext, "_active_spark_context", made)
    return made


def test_what_was_built_for_a_key_is_used_again(driver: Driver) -> None:
    first = reused("a", object)
    assert reused("a", object) is first
    assert reused("b", object) is not first


def test_another_driver_builds_its_own(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reused("a", object)
    monkeypatch.setattr(SparkContext, "_active_spark_context", Driver())
    assert reused("a", object) is not first
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    alone = reused("a", object)
    assert reused("a", object) is alone
    assert alone is not first


def test_the_one_not_used_for_longest_goes_first(driver: Driver) -> None:
    first = reused(0, object)
    for key in range(1, KEPT):
        reused(key, object)
    assert reused(0, object) is first
    reused(KEPT, object)
    assert reused(0, object) is first
    again: list[int] = []
    reused(1, lambda: again.append(1))
    assert again == [1]
