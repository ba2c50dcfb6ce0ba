"""Settings of Parquet files that a sink loads right away: fast to write and to load rather than small."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import Transient, in_config

if TYPE_CHECKING:
    import pyarrow as pa


def encoding(schema: "pa.Schema") -> dict[str, Any]:
    """Options of pyarrow's ParquetWriter.

    Types that Parquet stores as integers are written as differences, all others by a dictionary while it is short.
    """
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    paths = Counter(path for path, _ in leaves)
    whole = [path for path, kind in leaves if _is_whole(kind) and paths[path] == 1]
    return {
        "compression": "lz4",
        "use_dictionary": [path for path, _ in leaves if path not in whole],
        "column_encoding": dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        "store_decimal_as_integer": True,
    }


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Raises Transient for what the system says while the file is written."""
    try:
        yield
    except OSError as exc:
        raise Transient(
            f"staging file {path}: {exc}", in_config("free disk space there, or change job.staging")
        ) from exc


def _leaves(path: str, kind: "pa.DataType") -> "Iterator[tuple[str, pa.DataType]]":
    """The leaf columns that Parquet stores for a column, by pyarrow's names of their paths."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind


def _is_whole(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    small = pa.types.is_decimal(kind) and kind.precision <= 18
    return bool(small or pa.types.is_integer(kind) or pa.types.is_timestamp(kind))
