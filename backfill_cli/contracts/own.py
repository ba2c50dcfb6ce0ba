"""The names of our own columns, aliases and temporary tables wherever they stand beside a user's.

All of them begin with PREFIX, and a user's column that does is refused when a job is planned: no name of ours can
be a user's. Each is defined here and nowhere else.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backfill_cli.errors import BackfillError, UsageError

PREFIX = "_backfill_"

# What upstreams return beside a row: see contracts.Source and contracts.ConsumableLog.
OP = "_backfill_op"
SEQ = "_backfill_seq"
MS = "_backfill_ms"
READ = "_backfill_read"
UNSENT = "_backfill_unsent"
EPOCH = "_backfill_epoch"

# Of a record, or a line: what cannot be read, and why.
ERROR = "_backfill_error"
RAW = "_backfill_raw"
BAD = "_backfill_bad"
QUARANTINED = "_backfill_quarantined"

# While files and records are parsed.
FILE = "_backfill_file"
AT = "_backfill_at"
ROW = "_backfill_row"
LINE = "_backfill_line"
KEY = "_backfill_key"
VALUE = "_backfill_value"
FAULT = "_backfill_fault"
MARK = "_backfill_mark"
SUB = "_backfill_sub"
PLACE = "_backfill_place"
TRACE = "_backfill_trace"
BEFORE = "_backfill_before"
HELD = "_backfill_held"

# While changes are netted, applied and compared.
LAST = "_backfill_last"
COUNT = "_backfill_count"
BITS = "_backfill_bits"
PART = "_backfill_part"
ROWS = "_backfill_rows"
SIGN = "_backfill_sign"

# Temporary tables and views.
SOURCE = "_backfill_source"
FILLED = "_backfill_filled"
INSERTS = "_backfill_inserts"
CHANGES = "_backfill_changes"
CARRIED = "_backfill_carried"
GONE = "_backfill_gone"
CHANGED = "_backfill_changed"
DERIVED = "_backfill_derived"
KEYS = "_backfill_keys"
PARTIALS = "_backfill_partials"
GROUPS = "_backfill_groups"
OLD = "_backfill_old"
MERGED = "_backfill_merged"

# The table in the sink of one of which only columns are kept: before its name.
COLUMNS = "_backfill_columns_"

# A table that takes the place of another one when its transaction ends.
ANEW = "_backfill_anew"


_PARTS = ("elementType", "keyType", "valueType")
"""Of Spark's nested types: what has a type of its own."""


def numbered(of: str, number: int) -> str:
    """The name of one of several columns of a kind: `_backfill_key_0`."""
    return f"{of}_{number}"


def fold(name: str) -> str:
    """A name as engines compare it that ignore case: letter by letter, as Spark does (`İ` and `ı` are `i`)."""
    uppers = (letter.upper() if len(letter.upper()) == 1 else letter for letter in name)
    return "".join(letter.lower()[:1] for letter in uppers)


def is_own(name: str) -> bool:
    """Whether a name is reserved, in any case."""
    return fold(name).startswith(PREFIX)


def twins(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each name that is equal to an earlier one, or equal but for its case, after the first such one."""
    first: dict[str, str] = {}
    for name in names:
        if (key := fold(name)) in first:
            yield first[key], name
        first.setdefault(key, name)


def refuse_names(what: str, names: Iterable[str], error: type[BackfillError] = UsageError) -> None:
    """Raises `error` for a column with a reserved name, or that another one cannot be told apart from."""
    listed = list(names)
    for name in listed:
        if not name:
            raise error(f"{what}: a column without a name", "give it a name upstream: SQL cannot refer to it")
        if is_own(name):
            raise error(
                f"{what}: column {name!r}: names that begin with {PREFIX} are backfill's own",
                "rename the column upstream; a transform cannot, as it reads the column by that name",
            )
    refuse_twins(what, listed, error)


def refuse_fields(what: str, fields: Iterable[Mapping[str, Any]]) -> None:
    """As `refuse_names`, for the fields of a Spark schema (JSON); as `refuse_twins`, at every depth of types."""
    listed = list(fields)
    refuse_names(what, [field["name"] for field in listed])
    for field in listed:
        _refuse_within(f"{what}, column {field['name']!r}", field["type"])


def _refuse_within(what: str, kind: Any) -> None:
    if isinstance(kind, Mapping):
        inner = kind.get("fields", ())
        refuse_twins(what, [field["name"] for field in inner])
        for one in (*(field["type"] for field in inner), *(kind[part] for part in _PARTS if part in kind)):
            _refuse_within(what, one)


def refuse_twins(what: str, names: Iterable[str], error: type[BackfillError] = UsageError) -> None:
    """Raises `error` for two names that are equal, or equal but for their case."""
    for first, name in twins(names):
        alike = f"columns {first!r} and {name!r} differ in case only, which Spark and the sinks ignore"
        raise error(
            f"{what}: {f'two columns are called {name!r}' if first == name else alike}",
            "rename one upstream; a name that the transform's select gives is changed there, by AS",
        )
