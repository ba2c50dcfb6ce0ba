"""What every sink refuses of a derived table, in the same words, and what differs from its SELECT."""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from backfill_cli.contracts.refusals import other_target
from backfill_cli.errors import BadData, SinkInUse, UsageError, command, shell
from backfill_cli.model.verify import DifferentRow

RIGHT_ROWS = "correct the rows that it reads, upstream"
CLOSE = "1e-12"
"""Floating-point numbers that differ by no more than this share are equal: a sum depends on the order of rows."""


def near(s: str, t: str, double: str, functions: str = "") -> str:
    """SQL: a floating-point number nearly equals that of the table, t. double: the type's name."""
    size = f"{functions}abs"
    # NaN is above infinity; near an infinite number there is everything
    return f"{size}({t}) < CAST('Infinity' AS {double}) AND {size}({s} - {t}) <= {CLOSE} * {size}({t})"


def not_ours(target: str, name: str, replaceable: bool = False) -> SinkInUse:
    """target: of a derived table, where a table with rows is that the job did not fill."""
    refused = SinkInUse(f"table {target} exists, with rows that are not this job's", other_target(name, target))
    refused.replaceable = replaceable
    return refused


def other_columns(
    target: str, name: str, wanted: Sequence[tuple[str, str]], replaceable: bool = False
) -> SinkInUse:
    listed = ", ".join(f"{column} {kind}" for column, kind in wanted)
    said = f"table {target} exists, with other columns than the SELECT of {name!r}: {listed}"
    refused = SinkInUse(said, other_target(name, target))
    refused.replaceable = replaceable
    return refused


def peculiar(target: str, name: str, found: str, drop: str) -> SinkInUse:
    """found: what an empty table has that can refuse rows, or not hold them as they are. drop: SQL."""
    said = f"table {target} exists, with more than the columns of a SELECT: {found}"
    return SinkInUse(said, other_target(name, target) + "; or drop it, and it is created: " + shell(drop))


def is_live(name: str, target: str, table: str) -> UsageError:
    """The target of a derived table is the name that people query for a table."""
    return UsageError(
        f"derived table {name!r}: its target, {target}, is the live name of table {table!r}",
        other_target(name, target),
    )


def reserved(name: str, target: str, why: str) -> UsageError:
    """why: what keeps a table from being called like the target."""
    return UsageError(f"derived table {name!r}: its target cannot be {target}: {why}", other_target(name, target))


def uncomputed(name: str, said: str) -> BadData:
    """said: what the engine says of rows that the SELECT cannot compute."""
    return BadData(f"derived table {name!r} cannot be computed: {said}", RIGHT_ROWS).of(name)


def altered(job: str, name: str, said: str) -> BadData:
    """said: what the database misses, though it took the SELECT: somebody has altered a table since."""
    hint = "it is filled anew by " + command(f"resume {job}")
    return BadData(f"derived table {name!r}, or a table that it reads, was altered: {said}", hint).of(name)


def or_leaves(job: str, refusal: BadData) -> BadData:
    """The refusal of a derived table's rows, which now tells the other way on, too: without it."""
    if refusal.table is not None:
        leaves = command(f"remove {job} --derived {quote(refusal.table)}", f"resume {job}")
        refusal.hint += "; or let it leave the job: " + leaves
    return refusal


def twice_in(name: str, key: Sequence[str], twice: Sequence[tuple[str, int]]) -> BadData:
    """Rows of a derived table that share a key; without one, all of them."""
    if not key:
        ((_, rows),) = twice
        said = f"derived table {name!r}: its SELECT has {rows} rows, and without a key it is one row"
        return BadData(said, "name a derived.key that tells them apart").of(name)
    listed = "; ".join(f"({values}) {count} times" for values, count in twice)
    return BadData(
        f"derived table {name!r}: its key ({', '.join(key)}) has duplicates: {listed}",
        "correct the rows that share it, upstream, or name a derived.key that tells them apart",
    ).of(name)


def different(shown: Sequence[str], keys: int, ours: Any, held: Any, *told: Any) -> Iterator[DifferentRow]:
    """A row that differs: ours by the SELECT, held by the table.

    shown: columns, those of the key first. told: their texts, by column of both, then whether each of the other
    columns differs.
    """
    texts, tests = told[: 2 * len(shown)], told[2 * len(shown) :]
    pairs = [(texts[2 * at], texts[2 * at + 1]) for at in range(len(shown))]
    key = tuple((name, pair[0] if ours else pair[1]) for name, pair in zip(shown[:keys], pairs, strict=False))
    if not (ours and held):
        yield DifferentRow(key, None, "1 row" if ours else "0 rows", "1 row" if held else "0 rows")
        return
    for name, pair, differs in zip(shown[keys:], pairs[keys:], tests, strict=True):
        if differs:
            yield DifferentRow(key, name, *pair)
