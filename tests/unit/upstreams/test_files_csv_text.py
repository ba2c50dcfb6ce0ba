"""CSV as workers split it: what Python's strict reader says of the same bytes, or refused naming the file."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hint_typed import typed
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from backfill_cli.errors import BadData
from backfill_cli.formats.listing import File, place
from backfill_cli.model.schema import field
from backfill_cli.upstreams.files.options import ChangesCsv, CsvOptions
from backfill_cli.upstreams.files.reading import csv_files, lines
from backfill_cli.upstreams.files.reading.lines import TextPart
from backfill_cli.upstreams.files.reading.text_rows import TextRows

Rows = list[list[str | None]]
PIECES = ["a", "é", ",", '"', "\n", "\r", "\r\n", "\\", " ", "\0", "\ue000", "N"]
MARKS = ["a", "b", ",", '"', "\n", "\r", "\r\n", '""', '","', '"\n"']
TEXT = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv") / "a.csv"


def texts_of(options: CsvOptions, columns: int, **more: Any) -> TextRows:
    """Rows of text columns `c0, c1, …`."""
    names = tuple(f"c{i}" for i in range(columns))
    return TextRows(options, names, {name: field(name, "string") for name in names}, **more)


def split(
    file: Path,
    content: bytes,
    columns: int,
    part_bytes: int | None = None,
    kind: type[CsvOptions] = CsvOptions,
    **options: Any,
) -> Rows:
    """What workers make of a file, in parts of this size."""
    file.write_bytes(content)
    chosen = kind(**options)
    bounds = (
        [(0, None)]
        if part_bytes is None
        else [(start, min(len(content), start + part_bytes)) for start in range(0, len(content), part_bytes)]
    )
    rows: Rows = []
    places: list[int] = []
    for start, end in bounds:
        part = TextPart(LocalFileSystem(), str(file), "a.csv", len(content), start, end)
        for batch in csv_files.batches(texts_of(chosen, columns), part):
            told = batch.to_pylist()
            rows += [[row[f"c{i}"] for i in range(columns)] for row in told]
            places += [row["_backfill_row"] for row in told]
    assert places == sorted(set(places))
    return rows


def accepted(file: Path, content: bytes, part_bytes: int | None, multi_line: bool) -> Rows | None:
    """The rows of two fields; None where they are refused by the file's name."""
    try:
        return split(file, content, 2, part_bytes, multi_line=multi_line)
    except BadData as error:
        if file.name not in error.message:
            raise
        return None


def written(rows: list[list[str]], end: str, **form: Any) -> bytes:
    told = io.StringIO(newline="")
    csv.writer(told, lineterminator=end, **form).writerows(rows)
    return told.getvalue().encode()


ROWS = st.lists(st.lists(TEXT, min_size=3, max_size=3), min_size=1, max_size=6)


@given(rows=ROWS, end=st.sampled_from(["\n", "\r\n", "\r"]), block=st.sampled_from([1, 7, 1 << 20]))
def test_what_is_quoted_comes_out_as_it_is(file: Path, rows: list[list[str]], end: str, block: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines, "BLOCK_BYTES", block)
        found = split(file, written(rows, end, quoting=csv.QUOTE_ALL), 3, multi_line=True)
    assert found == rows


@given(
    content=st.lists(st.sampled_from(MARKS), max_size=14).map("".join),
    multi_line=st.booleans(),
    part_bytes=st.sampled_from([None, 1, 3, 8]),
)
@example(content='1,"a\n2,b"\n', multi_line=False, part_bytes=None)
@example(content='1,"a', multi_line=True, part_bytes=None)
@example(content='1,"a"b\n', multi_line=True, part_bytes=None)
@example(content="1,a\r2,b\r", multi_line=False, part_bytes=3)
def test_any_bytes_are_read_as_a_strict_reader_does_or_refused(
    file: Path, content: str, multi_line: bool, part_bytes: int | None
) -> None:
    part_bytes = None if multi_line else part_bytes
    found = accepted(file, content.encode(), part_bytes, multi_line)
    try:
        wanted: Any = [row for row in csv.reader(io.StringIO(content, newline=""), strict=True) if row]
    except csv.Error:
        wanted = None
    if wanted is not None and any(len(row) != 2 for row in wanted):
        wanted = None
    shown = None if found is None else [[value or "" for value in row] for row in found]
    in_values = any("\n" in v or "\r" in v for row in wanted or [] for v in row)
    if found is not None or (not (in_values and not multi_line) and not _mixes_line_ends(content)):
        assert shown == wanted


def _mixes_line_ends(content: str) -> bool:
    """Whether a carriage return alone may be a line end or not: such files are refused."""
    return re.search(r"\r(?!\n)", content) is not None and "\n" in content


@pytest.mark.parametrize("content", [b"a\rb\nc\n", b"a\nb\rc", b"a\r\nb\rc\r\n", b'"x\ny"\na\rb\n'])
@pytest.mark.parametrize("multi_line", [True, False])
def test_a_carriage_return_alone_among_line_feeds_is_refused(file: Path, content: bytes, multi_line: bool) -> None:
    with pytest.raises(BadData, match=r"carriage return|not closed"):
        split(file, content, 1, multi_line=multi_line)


@pytest.mark.parametrize(
    "content", [b"1,a\r\r\n2,b\r\r\n", b"1,a\r\n2,b\r", b"1,a\n\r2,b\n", b"1,a\n2,b\n\r", b"\r1,a\n2,b\n"]
)
def test_carriage_returns_around_line_feeds_are_line_ends(file: Path, content: bytes) -> None:
    assert split(file, content, 2) == [["1", "a"], ["2", "b"]]


def test_lines_of_old_macs_may_hold_line_feeds_in_quotes(file: Path) -> None:
    assert split(file, b'1,"a\nb"\r2,c', 2, multi_line=True) == [["1", "a\nb"], ["2", "c"]]


@given(rows=ROWS, part_bytes=st.sampled_from([None, 5, 40]))
def test_lines_cut_anywhere_are_each_read_once(file: Path, rows: list[list[str]], part_bytes: int | None) -> None:
    flat = [[value.replace("\n", "").replace("\r", "") for value in row] for row in rows]
    content = b"\xef\xbb\xbfx,y,z\n" + written(flat, "\n", quoting=csv.QUOTE_ALL)
    assert split(file, content, 3, part_bytes, header=True) == flat


@given(rows=ROWS)
def test_escapes_before_quotes_are_taken_away_and_no_others(file: Path, rows: list[list[str]]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    content = "\n".join(",".join(map(quoted, row)) for row in rows).encode()
    assert split(file, content, 3, multi_line=True, escape="\\") == rows


def test_an_escape_before_anything_else_is_a_character(file: Path) -> None:
    content = b'C:\\new,"C:\\temp, \\"x\\"",\\"\n'
    assert split(file, content, 3, escape="\\") == [["C:\\new", 'C:\\temp, "x"', '\\"']]


def test_null_is_told_from_empty_and_from_its_own_text_in_quotes(file: Path) -> None:
    found = split(file, b'\\N,"\\N",,""\n', 4, null_value="\\N")
    assert found == [[None, "\\N", None, ""]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'1,"a\n', "not closed"),
        (b"1\n", "expected 2 fields"),
        (b"1,\xff\n", "not UTF-8"),
        (b'1,"a" \n', "has text after its closing quote"),
    ],
)
def test_what_is_no_record_is_shown(file: Path, content: bytes, said: str) -> None:
    with pytest.raises(BadData, match=said):
        split(file, b"5,5\n" + content + b"6,6\n", 2, multi_line=True)


@pytest.mark.parametrize("kind", [CsvOptions, ChangesCsv])
@pytest.mark.parametrize(
    ("content", "says", "corrected"),
    [
        (b"1,a,b\n", "fields that contain the delimiter must be quoted", b'1,"a,b"\n'),
        (b"1,\xff\n", "write the file as UTF-8", b"1,\xc3\xbf\n"),
        (b"1,a\rb\n", "quote the field that contains it", b'1,"a\rb"\n'),
        (b"1,'a'\n2,\"b\"x\n", "set to what the file uses", b"1,'a'\n2,\"b\"x\n"),
    ],
)
def test_a_file_is_corrected_as_its_hint_says(
    file: Path, kind: type[CsvOptions], content: bytes, says: str, corrected: bytes
) -> None:
    """A snapshot that a job has pinned must then be pinned again."""
    with pytest.raises(BadData) as refused:
        split(file, content, 2, kind=kind)
    with typed(refused.value) as hint:
        hint.says(says)
        options: dict[str, Any] = {"multi_line": True} if b"\r" in content else {}
        if "set to what" in says:
            hint.says(f"{kind.at}.quote")
            options = {"quote": "'", "escape": "'"}
        assert len(split(file, corrected, 2, kind=kind, **options)) == corrected.count(b"\n")
        assert ("start over" in hint.hint) == (kind is CsvOptions or "set to what" in says)


ODD = b'id,n\n1,2\n2,x\n\n3\n"4",\xff\n5,"6\n'


def kept(file: Path, content: bytes, **options: Any) -> tuple[list[tuple[Any, Any]], list[dict[str, Any]]]:
    """(rows that can be read, what is quarantined of the others)."""
    file.write_bytes(content)
    columns = {"id": field("id", "long"), "n": field("n", "integer")}
    how = TextRows(CsvOptions(header=True, **options), ("id", "n"), columns, quarantine=True)
    rows = [row for part in parts(file, content) for b in csv_files.batches(how, part) for row in b.to_pylist()]
    good = [(row["id"], row["n"]) for row in rows if row["_backfill_quarantined"] is None]
    return good, [row["_backfill_quarantined"] for row in rows if row["_backfill_quarantined"]]


def parts(file: Path, content: bytes) -> list[TextPart]:
    """Of records that a part can be cut between; b"\\r" stands in fields of several lines."""
    fs, size = LocalFileSystem(), len(content)
    step = size if b"\r" in content else 9
    return [
        TextPart(fs, str(file), "a.csv", size, start, min(size, start + step)) for start in range(0, size, step)
    ]


def test_records_that_cannot_be_read_are_kept_with_line_reason_and_bytes(file: Path) -> None:
    good, bad = kept(file, ODD.replace(b'"6', b"6"))
    assert good == [(1, 2), (5, 6)]
    assert [(one["file"], one["line"], one["value"], one["reason"]) for one in bad] == [
        (str(file), 3, b"2,x", "column 'n': not exactly an int: x"),
        (str(file), 5, b"3", "expected 2 fields, found 1"),
        (str(file), 6, b'"4",\xff', "not UTF-8 text"),
    ]


@pytest.mark.parametrize("block", [12, 30, 1 << 20])
def test_a_line_has_one_number_whatever_is_read_at_once(
    file: Path, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Carriage returns inside of fields end no line."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", block)
    _, bad = kept(file, b'id,n\n1,"\rx\r\r"\n2,x\n3,"\ry"\n4,y\n5,"\r\n"\n6,z\n', multi_line=True)
    assert [one["line"] for one in bad] == [2, 3, 4, 5, 6, 8]


def test_a_long_field_in_a_bad_record_is_no_fault_of_ours(file: Path) -> None:
    csv.field_size_limit(131_072)  # what a process begins with
    good, bad = kept(file, b"id,n\n1,%b,3\n5,6\n" % (b"x" * 140_000))
    assert good == [(5, 6)]
    assert [(one["line"], one["reason"]) for one in bad] == [(2, "expected 2 fields, found 3")]


def test_a_quote_that_is_never_closed_stops_the_job_also_with_quarantine(file: Path) -> None:
    """Where its record ends, and what the next ones are, nobody knows."""
    with pytest.raises(BadData, match="not closed on its line"):
        kept(file, ODD)


def test_a_quote_that_is_never_closed_is_named_by_its_line_alone(file: Path) -> None:
    with pytest.raises(BadData) as refused:
        split(file, b'1,a\n\n2,b\n3,"c\n4,d\n5,e\n', 2)
    assert refused.value.message.endswith('in the record at line 4 (byte 9): 3,"c')


def test_a_header_that_is_not_utf8_is_written_again(tmp_path: Path) -> None:
    def names(content: bytes) -> list[str]:
        (tmp_path / "a.csv").write_bytes(content)
        told = File("a.csv", str(tmp_path / "a.csv"), len(content), 0)
        return csv_files.header(place(str(tmp_path), "t"), told, CsvOptions(header=True))

    with pytest.raises(BadData, match=r"a\.csv: its header is not UTF-8 text") as refused:
        names(b"id,\xff\n1,2\n")
    with typed(refused.value) as hint:
        hint.says("write the file as UTF-8")
        assert names("id,ÿ\n1,2\n".encode()) == ["id", "ÿ"]
