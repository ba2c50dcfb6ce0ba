"""An error that is of one table says so as a value, also once it has passed through Spark as text."""

import errno

import pytest

from backfill_cli.errors import (
    BackfillError,
    BadData,
    ColumnAdded,
    Fatal,
    HistoryGone,
    LogFirst,
    SparkEnded,
    SpoolFull,
    StateConflict,
    Transient,
    UsageError,
    of_table,
)
from backfill_cli.model.failures import cause_of
from backfill_cli.spark.failures import from_spark, raising_in_worker, reading
from backfill_cli.spark.object_store import meant


def raised_in(name: str, error: BackfillError, *more: type[BackfillError]) -> BackfillError:
    with pytest.raises(BackfillError) as caught, of_table(name, *more):
        raise error
    return caught.value


ENDS_ALL = (Transient, StateConflict, SparkEnded, SpoolFull)


@pytest.mark.parametrize("kind", [Fatal, UsageError, HistoryGone, *ENDS_ALL])
def test_only_data_is_of_the_table_that_is_dealt_with_and_what_its_block_says_more(
    kind: type[BackfillError],
) -> None:
    assert raised_in("orders", BadData("a value")).table == "orders"
    assert raised_in("orders", kind("no server")).table is None
    assert raised_in("orders", kind("its files"), kind).table == (None if kind in ENDS_ALL else "orders")
    assert raised_in("orders", kind("all files"), BackfillError).table == (None if kind in ENDS_ALL else "orders")


def test_what_knows_better_stays() -> None:
    assert raised_in("orders", BadData("a value").of("refunds")).table == "refunds"
    assert raised_in("orders", BadData("a disk").of(""), Fatal).table == ""


def test_an_object_store_that_denies_access_is_of_no_table() -> None:
    error = meant("s3://bucket/orders", "When getting information: AWS Error ACCESS_DENIED during HeadObject")
    assert error is not None
    assert raised_in("orders", error, Fatal).table == ""


def test_a_right_that_the_reading_user_lacks_and_a_package_that_executors_lack_are_of_no_table() -> None:
    with pytest.raises(Fatal) as denied, reading("/snap/orders/p.parquet", "Parquet"):
        raise PermissionError(13, "Permission denied")
    lacks = from_spark(RuntimeError("ModuleNotFoundError: No module named 'backfill_cli.spark'"))
    assert lacks is not None
    for error in (denied.value, lacks):
        assert raised_in("orders", error, Fatal).table == ""


@pytest.mark.parametrize("table", ["orders", 'my "schema"."t,1] x"', None])
def test_it_passes_through_a_worker(table: str | None) -> None:
    error = BadData("line 1 : not a number")
    error.table = table
    with pytest.raises(RuntimeError) as told, raising_in_worker():
        raise error
    again = from_spark(told.value)
    assert isinstance(again, BadData)
    assert (again.message, again.table) == (error.message, table)


@pytest.mark.parametrize("table", ["orders", None])
def test_what_a_transient_failure_of_a_worker_was_of_is_still_known(table: str | None) -> None:
    error = LogFirst("no room")
    error.table, error.__cause__ = table, OSError(errno.ENOSPC, "full")
    with pytest.raises(RuntimeError) as told, raising_in_worker():
        raise error
    again = from_spark(told.value)
    assert isinstance(again, LogFirst)
    assert (again.message, again.table, cause_of(again)) == (error.message, table, "ENOSPC")


def test_a_column_that_was_added_still_says_where() -> None:
    with pytest.raises(RuntimeError) as told, raising_in_worker():
        raise ColumnAdded("a column", at=("orders", 3, 7))
    again = from_spark(told.value)
    assert isinstance(again, ColumnAdded)
    assert again.at == ("orders", 3, 7)
