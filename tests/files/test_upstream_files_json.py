"""JSON snapshot files: the guards that JSON in Kafka has, and a file that ends exact or is refused by name."""

import bz2
import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from files_values import FAILURES, scanned, snapshot_of

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.errors import BadData
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.spark.failures import from_spark
from backfill_cli.upstreams.files import connector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = "id BIGINT, t TINYINT, f FLOAT, d DOUBLE, p DECIMAL(6,2), s STRING, b BOOLEAN, a ARRAY<SMALLINT>"

# More of them go through every route in tests/oracle/json_inputs.py.
REFUSED = {
    "two objects, one line end of old Macs": b'{"id": 1}\r{"id": 2}',
    "half a surrogate as bytes": b'{"id": 1, "s": "\xed\xa0\xbd"}',
    "a fraction for a whole number": b'{"id": 1.5}',
    "a text for a number": b'{"id": "1"}',
    "a boolean for a number": b'{"id": true}',
    "a number for a boolean": b'{"id": 1, "b": 1}',
    "a text for a boolean": b'{"id": 1, "b": "true"}',
    "a line feed inside a text": b'{"id": 1, "s": "a\x01"}',
    "a float that two roundings would make another": b'{"id": 1, "f": 1.00000005960464477539062500001}',
    "a column in other letters beside itself": b'{"id": 1, "s": null, "S": "x"}',
    "null after an object": b'{"id": 1} null',
    "null and blanks": b" null\r",
}


def of_lines(root: Path, ddl: str, files: dict[str, bytes]) -> Source:
    for name, content in files.items():
        (root / f"{name}.json").write_bytes(content)
    options = {"snapshot": {"path": str(root), "format": "json", "schema": ddl}}
    return connector.open(connector.options.model_validate(options), [TableSpec("t", ("id",))])


def refused(upstream: Source, spark: "SparkSession", name: str) -> bool:
    """Whether reading this file ends in an error that names it."""
    try:
        upstream.scan(spark, "t", [SnapshotRead("t", f"{name}.json", 0, None)]).toArrow()
    except FAILURES as exc:
        error = from_spark(exc)
        return isinstance(error, BadData) and f"{name}.json: " in error.message
    return False


def test_what_is_not_exactly_the_columns_is_refused_naming_its_file(tmp_path: Path, spark: "SparkSession") -> None:
    everything = json.dumps(dict.fromkeys(["id", "t", "f", "d", "p", "s", "b", "a"])).encode()
    files = {name: b'{"id": 5}\n' + line + b"\n" for name, line in REFUSED.items()}
    upstream = of_lines(tmp_path, DDL, files | {"0": everything})
    upstream.pin()
    with ThreadPoolExecutor(4) as pool:  # each is a job of its own, mostly waiting for its worker
        found = list(pool.map(lambda name: refused(upstream, spark, name), REFUSED))
    passed = [name for name, was in zip(REFUSED, found, strict=True) if not was]
    assert not passed


EXACT: list[tuple[bytes, dict[str, Any]]] = [
    (
        b'{"id": 1, "t": -128, "d": -0.0, "s": "\\ud83d\\ude00 \\u0000"}\r',
        {"t": -128, "d": -0.0, "s": "\U0001f600 \0"},
    ),
    (
        b'{"id": 2, "f": 0.1, "p": 1234.50, "b": false, "a": [1, null, -32768]}',
        {"f": 0.10000000149011612, "p": Decimal("1234.50"), "b": False, "a": [1, None, -32768]},
    ),
    (b'\t{"s": 1.25, "id" : 3, "extra": [1, {"a": 2}]} ', {"s": "1.25"}),
    (b"", {}),
    (b'{"id": 4, "s": "back\\\\slash \\\\ud83d"}', {"s": "back\\slash \\ud83d"}),
    (b'{"id": 5, "d": "NaN", "f": "-Infinity"}', {"d": "nan", "f": float("-inf")}),
    ('{"id": 6, "s": "漢\u2028"}'.encode(), {"s": "漢\u2028"}),
    (b'{"id": 7, "s": null, "inner": {"S": 1, "Id": 2}}', {}),
    (b'{"id": 8, "extra": "\\"S\\":"}', {}),
    (b'{"id":\r9,\r"s": "x"}\r', {"s": "x"}),
]


def test_odd_lines_are_read_exactly(tmp_path: Path, spark: "SparkSession") -> None:
    content = b"\xef\xbb\xbf" + b"\n".join(line for line, _ in EXACT)
    rows = scanned(of_lines(tmp_path, DDL, {"a": content}), spark)
    empty = dict.fromkeys(["t", "f", "d", "p", "s", "b", "a"])
    wanted = [{**empty, **row} for line, row in EXACT if row or b"id" in line]
    shown = [{name: "nan" if value != value else value for name, value in row.items()} for row in rows]
    assert [{name: row[name] for name in empty} for row in shown] == wanted
    assert str(shown[0]["d"]) == "-0.0"


def test_a_file_of_one_line_with_a_byte_order_mark(tmp_path: Path, spark: "SparkSession") -> None:
    upstream = snapshot_of(tmp_path, "json", "id BIGINT", '\ufeff{"id": 1}')
    assert [row["id"] for row in scanned(upstream, spark)] == [1]


def test_case_77_every_member_of_a_compressed_file_is_read_or_the_file_is_refused(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """As `cat a.gz b.gz`, parallel compressors and log shippers write them; an empty member too."""
    compress: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "zst": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    }
    parts = [b"".join(b'{"id": %d}\n' % id for id in range(first, first + 40)) for first in (0, 40)]
    for suffix, packed in compress.items():
        folder = tmp_path / suffix
        folder.mkdir()
        (folder / f"a.json.{suffix}").write_bytes(packed(parts[0]) + packed(b"") + packed(parts[1]))
        options = {"snapshot": {"path": str(folder), "format": "json", "schema": "id BIGINT"}}
        upstream = connector.open(connector.options.model_validate(options), [TableSpec("t", ("id",))])
        found = outcome(upstream, spark)
        assert found == list(range(80)) or (suffix != "gz" and f"a.json.{suffix}: " in str(found)), found


def outcome(upstream: Source, spark: "SparkSession") -> list[Any] | str:
    """The ids that are read, or the error."""
    try:
        return [row["id"] for row in scanned(upstream, spark)]
    except BadData as error:
        return error.message
    except FAILURES as exc:
        return str(from_spark(exc))
