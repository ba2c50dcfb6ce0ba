"""Foreign errors become ours, with the file in them and the right exit code."""

import errno

import pyarrow as pa
import pytest

from backfill_cli.errors import START_OVER, BackfillError, BadData, ColumnAdded, Fatal, Transient
from backfill_cli.spark.failures import MARK, ending, from_spark, raising_in_worker, reading, spark_reading


@pytest.mark.parametrize(
    ("raised", "ours"),
    [
        (OSError(errno.EIO, "Input/output error"), Transient),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), Transient),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Transient),
        (OSError(errno.ENOSPC, "no space"), Transient),
        (PermissionError(errno.EACCES, "denied"), Fatal),
        (FileNotFoundError(errno.ENOENT, "gone"), Fatal),
        (OSError(errno.ENOTDIR, "no folder"), Fatal),
        (pa.ArrowInvalid("footer"), BadData),
        (OSError("Corrupt snappy compressed data."), BadData),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), BadData),
    ],
)
def test_a_failure_is_named_with_its_file_and_said_to_pass_or_not(
    raised: Exception, ours: type[Exception]
) -> None:
    with pytest.raises(BackfillError) as caught, reading("/data/x.parquet", "parquet"):
        raise raised
    assert type(caught.value) is ours
    assert "/data/x.parquet" in caught.value.message


def test_our_own_errors_pass_through() -> None:
    with pytest.raises(Fatal, match=r"^as it is$"), reading("/data/x", "parquet"):
        raise Fatal("as it is")


def test_a_bug_stays_a_bug() -> None:
    with pytest.raises(ZeroDivisionError), reading("/data/x", "parquet"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("text", "ours", "message", "hint"),
    [
        (
            f"[USER_RAISED_EXCEPTION] {MARK} 1.json: unknown op: x{ending('')} SQLSTATE",
            BadData,
            "1.json: unknown op: x",
            "",
        ),
        (
            f"{MARK} 1.json: column 'c': odd: v{ending('do :try this :end' + START_OVER)}",
            BadData,
            "1.json: column 'c': odd: v",
            "do :try this :enddrop the job and start over",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///d/a%20b.parquet. SQLSTATE\n"
            "Caused by: java.io.EOFException: Reached the end",
            BadData,
            "file:///d/a b.parquet: cannot be read: Reached the end",
            None,
        ),
        ("[PATH_NOT_FOUND] Path does not exist: file:/d/1.json. SQLSTATE", Fatal, "file:/d/1.json: missing", None),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] reading file s3a://b/1.json. File",
            Fatal,
            "s3a://b/1.json: missing",
            None,
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] reading file s3a://b/1.json. Read timed out",
            Transient,
            "s3a://b/1.json",
            None,
        ),
    ],
)
def test_a_spark_failure_is_taken_apart(text: str, ours: type[Exception], message: str, hint: str | None) -> None:
    found = from_spark(RuntimeError(text))
    assert type(found) is ours
    assert found is not None
    assert found.message.startswith(message)
    assert hint is None or str(found.hint) == hint


def test_a_spark_failure_of_something_else_is_not_ours() -> None:
    assert from_spark(RuntimeError("[DIVIDE_BY_ZERO] Division by zero")) is None
    with pytest.raises(RuntimeError, match="DIVIDE"), spark_reading():
        raise RuntimeError("[DIVIDE_BY_ZERO] Division by zero")


@pytest.mark.parametrize("ours", [BadData("f: broken", "mend it"), Fatal("f: gone"), Transient("f: busy")])
def test_an_error_of_a_worker_comes_back_as_it_was(ours: BackfillError) -> None:
    with pytest.raises(RuntimeError) as caught, raising_in_worker():
        raise ours
    found = from_spark(caught.value)
    assert (type(found), str(found)) == (type(ours), str(ours))


def test_a_new_column_comes_back_with_the_place_of_its_record() -> None:
    with pytest.raises(RuntimeError) as caught, raising_in_worker():
        raise ColumnAdded("column 'a' is new", "declare it", ("a, [b] ü", 3, 17))
    found = from_spark(caught.value)
    assert isinstance(found, ColumnAdded)
    assert (found.message, found.at) == ("column 'a' is new", ("a, [b] ü", 3, 17))


def test_executors_without_a_package_are_told_what_to_install() -> None:
    text = "org.apache.spark.api.python.PythonException: ModuleNotFoundError: No module named 'backfill_cli'"
    found = from_spark(RuntimeError(text))
    assert isinstance(found, Fatal)
    assert "executors have no Python module backfill_cli" in found.message


@pytest.mark.parametrize("text", ["a :b", " :", "a :try b", "x :end", "50% :", "%20:", "%2520: %", "a :row 7: b"])
def test_what_an_error_of_ours_quotes_passes_through_spark_as_it_is(text: str) -> None:
    with pytest.raises(RuntimeError) as caught, raising_in_worker():
        raise BadData(f"key {text}: bad", f"correct {text}")
    told = from_spark(Exception(f"Job aborted: {caught.value}\n\tat org.apache"))
    assert told is not None
    assert (told.message, str(told.hint)) == (f"key {text}: bad", f"correct {text}")


@pytest.mark.parametrize(
    "text", ["a :b", "x :end y", "x :try y", " :try {} :end", '{"parts": 1} :end', "a\n :end", "%20:"]
)
def test_what_an_expression_quotes_passes_through_spark_as_it_is(text: str) -> None:
    """`raise_error` gets data as it is, and only its end is ours."""
    raised = f"[USER_RAISED_EXCEPTION] {MARK} {text}.json: op: {text}{ending('mend it')} SQLSTATE"
    told = from_spark(RuntimeError(raised))
    assert type(told) is BadData
    assert (told.message, str(told.hint)) == (f"{text}.json: op: {text}", "mend it")
