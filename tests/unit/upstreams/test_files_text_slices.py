"""Slices of CSV and JSON files: wherever they are cut, each row is read once, and has its line number."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.contracts import Piece, TableSpec, own
from backfill_cli.errors import BadData
from backfill_cli.formats.listing import File, Place, place
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.schema import field
from backfill_cli.model.split import Split
from backfill_cli.upstreams.files.options import CsvOptions, SnapshotFiles
from backfill_cli.upstreams.files.reading import csv_files, json_rows, lines
from backfill_cli.upstreams.files.reading.text_rows import TextRows
from backfill_cli.upstreams.files.snapshot import side
from backfill_cli.upstreams.files.snapshot.pin import splits_of

COLUMNS = {"a": field("a", "string"), "b": field("b", "string")}
TEXT = st.text(st.sampled_from('ab,"é€😀 \t\\\u2028\x85'), max_size=9)
BARE = {"header": False}
ENDS = st.sampled_from(["\n", "\r\n"])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "SLICED_BYTES", 0)
    monkeypatch.setattr(lines, "SLICE_PART_BYTES", 23)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 11)
    monkeypatch.setattr(lines, "_BLOCK", 16)


def written(folder: Path, name: str, content: bytes) -> tuple[Place, File]:
    (folder / name).write_bytes(content)
    return place(str(folder), "t"), File(name, str(folder / name), len(content), 0)


def snapshot(where: Place, file: File, options: SnapshotFiles) -> side.TableSnapshot:
    """With this file pinned."""
    table = side.TableSnapshot(TableSpec("t", ()), options, None)
    splits, columns = splits_of(where, [file], TableSpec("t", ()), options, False)
    table.take(splits, columns)
    return table


def slices_of(table: side.TableSnapshot, size: int, rows: Callable[[], int]) -> Iterator[SnapshotRead]:
    """Reads of a file as an epoch after the other closes them."""
    (name,), after = table.files, None
    for _ in range(size + 2):
        read = table.closed(SnapshotRead("t", name, after, limit_rows=rows()))
        assert read.limit_rows is None
        assert table.row_count(read) is None
        yield read
        if read.up_to is None:
            return
        assert 0 < int(read.up_to) < size
        assert after is None or int(read.up_to) > int(after)
        after = read.up_to
    raise AssertionError("no end")


def made(table: side.TableSnapshot, read: SnapshotRead, how: TextRows, kind: str) -> list[dict[str, Any]]:
    """The rows of a slice, as workers make them."""
    file = table.files[read.split]
    end = file.size if read.up_to is None else int(read.up_to)
    slices = {file.name: (int(read.after or 0), end)}
    if kind == "csv":
        pieces = [Piece(0, part) for part in csv_files.parts(table.where, [file], how.csv, slices)]
        return [row for batch in csv_files._made(how, pieces) for row in batch.to_pylist()]
    pieces = [Piece(0, part) for part in lines.parts(table.where, [file], cut=True, slices=slices)]
    return [row for batch in json_rows._made(how, pieces) for row in batch.to_pylist()]


def spelled_csv(rows: list[tuple[str, str]], ends: list[str], blank: list[int], last: bool) -> str:
    """As plain Python writes it, each row with its own line end, and blank lines after some."""
    told = []
    for index, row in enumerate(rows):
        out = io.StringIO()
        csv.writer(out, lineterminator="", quoting=csv.QUOTE_ALL if index % 3 else csv.QUOTE_MINIMAL).writerow(row)
        end = ends[index % len(ends)]
        told.append(out.getvalue() + end * (1 + blank[index % len(blank)]))
    text = "".join(told)
    return text if last else text.rstrip("\r\n")


@given(
    st.lists(st.tuples(TEXT.filter(str.strip), TEXT), min_size=1, max_size=12),
    st.lists(ENDS, min_size=1, max_size=3),
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_each_row_of_csv_is_in_one_slice_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    ends: list[str],
    blank: list[int],
    last: bool,
    header: bool,
    marked: bool,
    data: st.DataObject,
) -> None:
    text = spelled_csv([("a", "b"), *rows] if header else rows, ends, blank, last)
    where, file = written(tmp_path_factory.mktemp("csv"), "f.csv", ("\ufeff" * marked + text).encode())
    options = SnapshotFiles.model_validate(
        {
            "path": str(where.folder),
            "format": "csv",
            "schema": "a STRING, b STRING",
            "csv": {"header": header, "null_value": "NOTHING"},
        }
    )
    table = snapshot(where, file, options)
    how = TextRows(options.csv, ("a", "b"), COLUMNS)
    found = [
        row
        for read in slices_of(table, file.size, lambda: data.draw(st.integers(1, 4)))
        for row in made(table, read, how, "csv")
    ]
    expected = [row for row in csv.reader(io.StringIO(text, newline="")) if row][int(header) :]
    assert [(row["a"], row["b"] or "") for row in found] == [tuple(row) for row in expected]
    assert len({row[own.ROW] for row in found}) == len(found)


@given(
    st.lists(st.one_of(st.dictionaries(st.sampled_from("ab"), TEXT), st.just("broken"), st.none()), max_size=12),
    st.lists(ENDS, min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_each_line_of_json_is_in_one_slice_and_keeps_its_number(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, str] | str | None],
    ends: list[str],
    ascii_only: bool,
    last: bool,
    data: st.DataObject,
) -> None:
    spelled = [
        "" if row is None else "{" + row if isinstance(row, str) else json.dumps(row, ensure_ascii=ascii_only)
        for row in rows
    ]
    text = "".join(line + ends[index % len(ends)] for index, line in enumerate(['{"a": "", "b": ""}', *spelled]))
    text = text if last else text.rstrip("\r\n")
    where, file = written(tmp_path_factory.mktemp("json"), "f.json", text.encode())
    options = SnapshotFiles.model_validate(
        {"path": str(where.folder), "format": "json", "schema": "a STRING, b STRING"}
    )
    table = snapshot(where, file, options)
    how = TextRows(CsvOptions(), (), COLUMNS, quarantine=True)
    found = [
        row
        for read in slices_of(table, file.size, lambda: data.draw(st.integers(1, 4)))
        for row in made(table, read, how, "json")
    ]
    good = [row for row in found if row[own.QUARANTINED] is None]
    bad = [row[own.QUARANTINED] for row in found if row[own.QUARANTINED] is not None]
    expected = [{"a": "", "b": ""}, *(row for row in rows if isinstance(row, dict))]
    assert [(row["a"], row["b"]) for row in good] == [(row.get("a"), row.get("b")) for row in expected]
    broken = [index for index, line in enumerate(text.split("\n"), 1) if line.startswith("{broken")]
    assert [(one["line"], one["value"]) for one in bad] == [(number, b"{broken") for number in broken]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_a_slice_has_as_many_rows_as_it_may_where_a_block_shows_them(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], rows: int, data: st.DataObject
) -> None:
    content = b"".join(b'{"a": "' + b"x" * size + b'"}\n' for size in sizes)
    where, file = written(tmp_path_factory.mktemp("json"), "f.json", content)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines, "_BLOCK", 1 << 16)
        end = lines.end_of(where, file, 0, rows, "json")
    assert content[:end].count(b"\n") == min(rows, len(sizes))


def splits(where: Place, file: File, **options: Any) -> Split:
    told = {"path": str(where.folder), "schema": "a STRING, b STRING", **options}
    found, _ = splits_of(where, [file], TableSpec("t", ()), SnapshotFiles.model_validate(told), True)
    return found[0]


@pytest.mark.parametrize(
    ("name", "content", "options", "cut"),
    [
        ("a.csv", b"1,a\n2,b\n", {"format": "csv", "csv": BARE}, True),
        ("a.csv", b"1,a\r\n2,b\r\n", {"format": "csv", "csv": BARE}, True),
        ("a.json", b'{"a": "1", "b": "c"}\n', {"format": "json"}, True),
        ("a.csv", b"1,a\r2,b\r", {"format": "csv", "csv": BARE}, False),
        ("a.csv", b"\n\n1,a\n2,b\n", {"format": "csv", "csv": BARE}, False),
        ("a.csv", b"1,a\n2,b\n", {"format": "csv", "csv": BARE | {"multi_line": True}}, False),
        ("a.csv.gz", gzip.compress(b"1,a\n2,b\n", mtime=0), {"format": "csv", "csv": BARE}, False),
        ("a.json.gz", gzip.compress(b'{"a": "1", "b": "c"}\n', mtime=0), {"format": "json"}, False),
    ],
)
def test_a_file_has_slices_where_a_line_end_ends_a_record(
    tmp_path: Path, name: str, content: bytes, options: dict[str, Any], cut: bool
) -> None:
    where, file = written(tmp_path, name, content)
    split = splits(where, file, **options)
    assert (split.cuttable, split.first, split.rows) == (cut, 0 if cut else None, None)


def test_a_small_file_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, file = written(tmp_path, "a.csv", b"1,a\n2,b\n")
    monkeypatch.setattr(lines, "SLICED_BYTES", 8)
    assert not splits(where, file, format="csv", csv=BARE).cuttable


def test_a_line_end_in_a_field_stops_the_slice_that_has_its_first_line(tmp_path: Path) -> None:
    content = b'1,a\n2,"b\nc"\n3,d\n'
    where, file = written(tmp_path, "a.csv", content)
    options = SnapshotFiles.model_validate(
        {"path": str(tmp_path), "format": "csv", "schema": "a STRING, b STRING", "csv": BARE}
    )
    table, how = snapshot(where, file, options), TextRows(options.csv, ("a", "b"), COLUMNS)
    first = table.closed(SnapshotRead("t", "a.csv", limit_rows=1))
    assert [row["a"] for row in made(table, first, how, "csv")] == ["1"]
    second = table.closed(replace(first, after=first.up_to, up_to=None, limit_rows=1))
    assert content[int(first.up_to or 0) : int(second.up_to or 0)] == b'2,"b\n'
    with pytest.raises(BadData, match=r"a quoted field is not closed on its line.* at line 2 "):
        made(table, second, how, "csv")
