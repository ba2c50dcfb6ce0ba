"""Turns errors of pyarrow, the system and Spark into ours, which name file and value."""

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from urllib.parse import quote, unquote

from backfill_cli.errors import (
    RESTORE,
    RETRIED,
    BackfillError,
    BadData,
    ColumnAdded,
    Fatal,
    Held,
    Hint,
    HistoryGone,
    LogFirst,
    StateConflict,
    Transient,
    UsageError,
    in_config,
)
from backfill_cli.model.failures import cause_of
from backfill_cli.spark.api import Column, F
from backfill_cli.spark.object_store import CALLING, meant

SHOWN = 200
"""Characters of a value that an error shows."""

MARK = "backfill:"
"""The beginning of messages that our own expressions raise inside Spark."""

_OWN = re.compile(
    re.escape(MARK)
    + r" (?:\[(\w+)(?::(\w+))?(?:,([\w.~%-]*)(?:,(\d+),(\d+))?)?\] )?"
    + r'(.*?) :try (\{"parts":[^\n]*?"retried":(?:true|false)\}) :end\b',
    re.DOTALL,
)
"""A whole message, see `ending`. An expression quotes data as it is: in it ` :try ` or ` :end` ends nothing."""

_KINDS: dict[str, type[BackfillError]] = {
    "ColumnAdded": ColumnAdded,  # those of a class before the class
    "BadData": BadData,
    "StateConflict": StateConflict,
    "Fatal": Fatal,
    "LogFirst": LogFirst,
    "Transient": Transient,
    "HistoryGone": HistoryGone,
    "Held": Held,
    "UsageError": UsageError,
}

_PASSING = frozenset(
    {
        errno.EIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ETIMEDOUT,
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.ECONNABORTED,
        errno.ENETUNREACH,
        errno.EHOSTUNREACH,
        errno.ESTALE,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
    }
)
RENAME_HINT = "write it again, under a name that begins with '_' or ends with .tmp, and rename it when complete"
SAME_PACKAGE = in_config(
    "install the packages of this job on the executors, and let spark.conf.'spark.pyspark.python' name that "
    "Python (a Connect server's is PYSPARK_PYTHON in its environment)"
)
CHANGES_HINT = "correct the change file; it may be replaced as long as it is not applied"
OR_QUARANTINE = in_config(
    "; or put it, and all others that cannot be read, into a quarantine table of the sink: "
    'upstream.on_error = "quarantine"'
)
GONE = "missing while it was read"


@contextmanager
def raising_in_worker() -> Iterator[None]:
    """Our own errors in the block pass through Spark as text, which `from_spark` parses."""
    try:
        yield
    except BackfillError as exc:
        kind = next(name for name, known in _KINDS.items() if isinstance(exc, known))
        kind += f":{cause_of(exc)}" if isinstance(exc, Transient) else ""
        at = f",{quote(exc.table, safe='')}" if exc.table else ""
        if isinstance(exc, ColumnAdded) and exc.at is not None:
            table, *place = exc.at
            at = f",{quote(table, safe='')},{place[0]},{place[1]}"
        raise RuntimeError(f"{MARK} [{kind}{at}] {_apart(exc.message)}{ending(exc.hint)}") from exc


def ending(way_on: Hint | str) -> str:
    """How a message that passes through Spark ends: with the hint as JSON."""
    value = json.dumps(asdict(Hint.of(way_on)), separators=(",", ":")).replace(" :", r" \u003a")
    return f" :try {value} :end"


def refused(file: Column, what: str | Column, value: Column, hint: Hint | str = "") -> Column:
    """An expression that raises when it is evaluated: `file: what: value`."""
    seen = F.coalesce(F.left(value.cast("string"), F.lit(SHOWN)), F.lit("NULL"))
    said = F.lit(what) if isinstance(what, str) else what
    return F.raise_error(
        F.concat(F.lit(f"{MARK} "), file, F.lit(": "), said, F.lit(": "), seen, F.lit(ending(hint)))
    )


def _apart(text: str) -> str:
    """The text without ` :`, at which a message that passes through Spark is split; see `_whole`."""
    return text.replace("%", "%25").replace(" :", "%20:")


def _whole(text: str) -> str:
    return text.replace("%20:", " :").replace("%25", "%")


@contextmanager
def reading(path: str, what: str, hint: Hint | str = RENAME_HINT) -> Iterator[None]:
    """Any failure in the block becomes ours and names `path`. what: the format it was read as, for messages.

    hint: of a damaged file.
    """
    import pyarrow as pa

    try:
        yield
    except BackfillError:
        raise
    except FileNotFoundError as exc:
        raise Fatal(f"{path}: {GONE}", RESTORE) from exc
    except PermissionError as exc:
        denied = Fatal(f"{path}: not readable: {exc.strerror}", "give this user permission to read it")
        raise denied.of("") from exc  # of the user that reads, who reads all tables
    except pa.ArrowInvalid as exc:
        raise BadData(f"{path}: not a complete {what} file: {_one_line(exc)}", hint) from exc
    except OSError as exc:
        if (of_store := meant(path, str(exc))) is not None:
            raise of_store from exc
        # pyarrow raises OSError without a number for a damaged file
        if exc.errno is None:
            raise BadData(f"{path}: not a complete {what} file: {_one_line(exc)}", hint) from exc
        if exc.errno in _PASSING or isinstance(exc, TimeoutError | ConnectionError):
            raise Transient(f"{path}: {_one_line(exc)}", RETRIED) from exc
        raise Fatal(f"{path}: {_one_line(exc)}", RESTORE) from exc
    except (pa.ArrowException, ValueError, UnicodeError) as exc:
        raise BadData(f"{path}: not a complete {what} file: {_one_line(exc)}", hint) from exc


def from_spark(exc: BaseException, way_on: Hint | str = RENAME_HINT) -> BackfillError | None:
    """Our error for a Spark failure while a frame of this upstream was computed; None if it is not recognised.

    way_on: for a file that is not complete.

    Recognised: errors that our own code raised, executors without this package (Fatal), a file that Spark could
    not read (BadData; Fatal if it is missing; Transient for timeouts and I/O errors).
    """
    text = str(exc)
    if (own := _rebuilt(text)) is not None:
        return own
    if "Python worker exited unexpectedly" in text:
        return Transient("one of Spark's Python workers was killed, or ran out of memory", RETRIED)
    lacks = re.search(r"No module named '((?:backfill_cli|pyarrow|confluent_kafka)[\w.]*)'", text)
    if lacks:
        return Fatal(f"Spark's executors have no Python module {lacks[1]}", SAME_PACKAGE).of("")
    if (of_store := meant("Spark", text)) is not None:
        return of_store
    if "FAILED_READ_FILE" not in text and "PATH_NOT_FOUND" not in text and "FileNotFoundException" not in text:
        return None
    found = re.search(r"\b((?:file|s3a?|gs|abfss?|hdfs):/[^\s'\"]+)", text)
    path = unquote(found.group(1)).rstrip(".,:") if found else "a file of the upstream"
    if "PATH_NOT_FOUND" in text or "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        return Fatal(f"{path}: {GONE}", RESTORE)
    if re.search(r"timed? ?out|Connection reset|Input/output error", text):
        return Transient(f"{path}: {cause_in(text)}", RETRIED)
    cause = re.findall(r"Caused by: [\w.$]+: ([^\n]+)", text)
    return BadData(f"{path}: cannot be read: {cause[0] if cause else cause_in(text)}", way_on)


def _rebuilt(text: str) -> BackfillError | None:
    """The error that our own code raised inside Spark; None if it did not."""
    own = _OWN.search(text)
    if own is None:
        return None
    kind, code, table, partition, offset, message, told = own.groups()
    hint = Hint.read(json.loads(told))
    if partition is not None:
        return ColumnAdded(_whole(message), hint, (unquote(table), int(partition), int(offset)))
    if not kind:  # raised by an expression; the others by Python, see `raising_in_worker`
        return BadData(message, hint)
    error = _KINDS.get(kind, BadData)(_whole(message), hint)
    error.table = unquote(table) if table else None
    if isinstance(error, Transient):
        error.code = code
    return error


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:300]


@contextmanager
def spark_reading(way_on: Hint | str = RENAME_HINT) -> Iterator[None]:
    """A Spark failure about a file in the block becomes ours. Spark checks paths as soon as a frame is defined.

    way_on: for a file that is not complete.
    """
    try:
        yield
    except BackfillError:
        raise
    except Exception as exc:
        ours = from_spark(exc, way_on)
        if ours is None:
            raise
        raise ours from exc


_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+[A-Z][\w$]*: (?=\S)")


def cause_in(said: str) -> str:
    """The first line of an error's own message: neither the call from Python, nor Java's class and frames."""
    lines = CALLING.sub("", said.strip()).splitlines()
    return _CLASS.sub("", next(filter(None, map(str.strip, lines)), ""))[:300]
