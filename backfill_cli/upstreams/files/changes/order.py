"""Change files are applied in the order of the numbers in their names; what contradicts it is refused.

If the config says that they increase by one, the job waits for a missing one.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from backfill_cli.contracts import own
from backfill_cli.errors import BadData, Transient, in_config
from backfill_cli.formats.listing import File
from backfill_cli.model.names import unlike_text
from backfill_cli.model.position import Cursor
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.upstreams.files.changes.change_format import Inspected

_WORDS = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]+")
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"[A-Za-z]*[0-9]+")
_SAME_WIDTH = "rename them so that all numbers have the same number of digits, like 09 and 10"


def refuse_unclear(table: str, waiting: Sequence[str]) -> None:
    """Raises BadData for two files of which nobody can tell which comes first.

    waiting: names, in order. Neighbours as texts are looked at, too: 998b and 999 are far apart by their numbers.
    """
    at = {name: number for number, name in enumerate(waiting)}
    as_texts = [(one, other) if at[one] < at[other] else (other, one) for one, other in pairwise(sorted(waiting))]
    for one, other in [*pairwise(waiting), *as_texts]:
        words = zip(_WORDS.findall(one), _WORDS.findall(other), strict=False)
        a, b = next(((a, b) for a, b in words if a != b), ("", ""))
        if a < b and _counts_down(a, b):
            raise BadData(
                f"table '{table}': '{one}' comes before '{other}', though its number is greater",
                _SAME_WIDTH,
            )
        if a > b and not _counts_up(a, b):
            raise BadData(
                f"table '{table}': '{one}' comes before '{other}' by the numbers in their names, and after it "
                "as text",
                "separate these numbers from the letters after them, as in 20240101-full and 20240102-delta",
            )


def _counts_down(a: str, b: str) -> bool:
    """Whether the second word has a smaller number, with fewer digits, where they first differ."""
    m, n = _first_unlike(a, b)
    return not m.startswith("0") and len(n) < len(m) and int(n) < int(m)


def _counts_up(a: str, b: str) -> bool:
    """Whether the second word surely has the greater number where they first differ."""
    m, n = _first_unlike(a, b)
    if not m or _NUMBERED.fullmatch(a) is not None:
        return bool(m)
    is_first = _DIGITS.findall(a)[0] == m  # a later one can be a time: T103015 and T1045
    return is_first and not (m.startswith("0") or n.startswith("0"))


def _first_unlike(a: str, b: str) -> tuple[str, str]:
    """The first numbers in which two words differ; empty if the words differ in more than numbers."""
    if _DIGITS.sub("0", a) != _DIGITS.sub("0", b):
        return "", ""
    numbers = zip(_DIGITS.findall(a), _DIGITS.findall(b), strict=True)
    return next(((m, n) for m, n in numbers if m != n), ("", ""))


def places(files: Sequence[File]) -> Mapping[str, str]:
    """For each file's name, a text that is ordered as these files are, which are in order; the name ends it.

    None where the names are in order as texts.
    """
    if unlike_text([file.name for file in files]) is None:
        return {}
    return {file.name: f"{number:0{_PLACE - 1}d} {file.name}" for number, file in enumerate(files)}


_PLACE = 11


def name_at(place: Column, places: Mapping[str, str]) -> Column:
    """The name that ends a text of `places`."""
    return F.substr(place, F.lit(_PLACE + 1)) if places else place


def placed(rows: DataFrame, places: Mapping[str, str]) -> DataFrame:
    """The rows with texts of `places` in `own.AT`, instead of the names. rows: `own.FILE, own.AT, …`."""
    if not places:
        return rows
    told = pa.table({own.FILE: list(places), own.PLACE: list(places.values())})
    found = rows.join(F.broadcast(rows.sparkSession.createDataFrame(told)), own.FILE)
    at = F.struct(F.col(own.PLACE).alias("file"), F.col(own.AT)["row"].alias("row"))
    return found.withColumn(own.AT, at).drop(own.PLACE)


def refuse_older_versions(table: str, pending: Sequence[Inspected], before: Cursor | None) -> None:
    """Raises BadData naming a file whose versions do not come after those before. before: the last one applied."""
    for found in pending:
        if found.versions is None:
            continue
        lowest, highest = found.versions
        if before is not None and not _after(lowest, before):
            raise BadData(
                f"table '{table}': {found.file.path} holds version {lowest}, but an earlier file holds version "
                f"{before}: they would be applied in the wrong order",
                "write each version into one file, and name the files in the order of their versions "
                "(Spark: coalesce(1))",
            )
        before = highest


def _after(a: Cursor, b: Cursor) -> bool:
    return a > b if isinstance(a, int) and isinstance(b, int) else str(a) > str(b)


_ENDING = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]*)*$")
_HINT = in_config(
    "wait for it, or restore it; if it never existed, remove upstream.changes.consecutive from the config"
)


def number_of(name: str) -> tuple[str, int] | None:
    """The text before the last number in a file's name, and that number; an extension (.7z) does not count."""
    stem = _ENDING.sub("", name[-200:])
    found = re.search(r"[0-9]+(?=[^0-9]*$)", stem)
    return (name[: -len(name[-200:])] + stem[: found.start()], int(found[0])) if found else None


def refuse_in_names(table: str, names: Sequence[str]) -> None:
    """Raises Transient if the number in a name does not follow the number in the name before it.

    names: in order; the last one applied, if any, and the pending ones. Raises BadData for one without a number.
    """
    for before, after in pairwise(names):
        one, other = number_of(before), number_of(after)
        if one is None or other is None:
            raise BadData(
                f"table '{table}': {before if one is None else after} has no number, but "
                "upstream.changes.consecutive says that numbers in names increase by one",
                in_config("remove upstream.changes.consecutive from the config, or name the file like the others"),
            )
        _refuse(table, "number", one[1], other[1], f"between {before} and {after}", one[0] == other[0])


def refuse_in_versions(table: str, before: Cursor | None, pending: Sequence[Inspected]) -> None:
    """Raises Transient if a file's lowest version does not follow the highest one before it.

    before: the highest version that was applied, or None.
    """
    for found in pending:
        if found.versions is None:
            continue
        lowest, highest = found.versions
        if isinstance(before, int) and isinstance(lowest, int):
            _refuse(table, "version", before, lowest, f"before {found.file.name}", True)
        before = highest


def _refuse(table: str, what: str, before: int, after: int, where: str, same: bool) -> None:
    """same: whether only the number differs; if not, another sequence can begin here, with any number."""
    if not same or after <= before + 1:
        return
    missing = f"{before + 1} is missing" if after == before + 2 else f"{before + 1} to {after - 1} are missing"
    raise Transient(f"table '{table}': {what} {missing} {where}", _HINT)
