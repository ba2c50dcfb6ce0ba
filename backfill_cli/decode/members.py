"""Which members objects have, by DuckDB: of a missing one Arrow's parser says only that it is NULL."""

from collections.abc import Callable, Sequence
from functools import cache

import duckdb
import pyarrow as pa

_READ = "SELECT row, TRY(json_keys(record, $at)) AS names FROM records"
_USUAL = f"SELECT names FROM ({_READ} LIMIT 1)"
_OTHERS = f"SELECT names, list(row) FROM ({_READ}) WHERE names IS DISTINCT FROM $usual GROUP BY names"


def unlike(records: Sequence[bytes], at: str, is_right: Callable[[frozenset[str]], bool]) -> set[int]:
    """The indices of the records whose object does not have the right members: 0.5 µs for each record.

    at: the object, as in `$.after`. Records are UTF-8. One that DuckDB cannot read is unlike the others, too.
    """
    if not records:
        return set()
    rows = pa.array(list(range(len(records))), pa.int32())
    table = pa.table({"row": rows, "record": pa.array(records, pa.binary()).cast(pa.string())})
    with _session().cursor() as session:
        session.register("records", table)
        ((usual,),) = session.execute(_USUAL, {"at": at}).fetchall()
        others = session.execute(_OTHERS, {"at": at, "usual": usual}).fetchall()
    found = {row for names, alike in others if names is None or not is_right(frozenset(names)) for row in alike}
    if usual is None or not is_right(frozenset(usual)):
        found |= set(range(len(records))) - {row for _, alike in others for row in alike}
    return found


@cache
def _session() -> duckdb.DuckDBPyConnection:
    """Made once in a process: that takes 20 ms."""
    return duckdb.connect(config={"threads": 1})
