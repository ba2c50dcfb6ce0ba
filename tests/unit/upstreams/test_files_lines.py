"""Lines of text files: where they end, and how much of a file without line ends is read."""

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import Piece
from backfill_cli.errors import RETRIED, BadData, Transient
from backfill_cli.formats.listing import File, Place, place
from backfill_cli.model.schema import field
from backfill_cli.spark.failures import CHANGES_HINT, OR_QUARANTINE
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import csv_files, json_rows, lines
from backfill_cli.upstreams.files.reading.lines import TextPart
from backfill_cli.upstreams.files.reading.text_rows import TextRows
from backfill_cli.upstreams.files.snapshot.scan import PINNED

NO_LINE_ENDS = ("\u2028", "\u2029", "\x0b", "\x0c", "\x85", "\x1c", "\x1d", "\x1e")
"""What str.splitlines takes for line ends, and no CSV reader."""


def written(folder: Path, name: str, content: bytes) -> tuple[Place, File]:
    (folder / name).write_bytes(content)
    return place(str(folder), "t"), File(name, str(folder / name), len(content), 0)


@pytest.mark.parametrize("multi_line", [True, False])
@pytest.mark.parametrize("mark", NO_LINE_ENDS)
def test_records_of_csv_end_at_line_ends_alone(tmp_path: Path, mark: str, multi_line: bool) -> None:
    where, file = written(tmp_path, "a.csv", f"id,na{mark}me,v\n1,a{mark}b,c\n".encode())
    options = CsvOptions(header=True, multi_line=multi_line)
    assert csv_files.header(where, file, options) == ["id", f"na{mark}me", "v"]
    assert csv_files.last_record(where, file, options, 3) == ["1", f"a{mark}b", "c"]


def test_a_last_record_of_several_lines_is_put_together(tmp_path: Path) -> None:
    where, file = written(tmp_path, "a.csv", b'1,x\r\n2,"a\nb"\r\n')
    assert csv_files.last_record(where, file, CsvOptions(multi_line=True), 2) == ["2", "a\nb"]


def test_a_carriage_return_between_tokens_of_json_ends_no_line(tmp_path: Path) -> None:
    where, file = written(tmp_path, "a.json", b'{"id":\r1}\r\n{"id"\r:2}\r')
    for found in (lines.forward(where, file, "json"), reversed(list(lines.last(where, file, "json")))):
        assert [lines.parsed(where, file, line) for line in found] == [{"id": 1}, {"id": 2}]
    part = TextPart(where.fs, file.path, file.name, file.size)
    told = [line for _, block in json_rows.blocks(part) for _, _, line in json_rows.numbered(block)]
    assert [json.loads(line) for line in told] == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("content", [b'{"id": 1}\r{"id": 2}\r', b'{"id": 1} {"id": 2}\n'])
def test_several_objects_on_a_line_are_told(tmp_path: Path, content: bytes) -> None:
    where, file = written(tmp_path, "a.json", content)
    with pytest.raises(BadData, match=r"a\.json: line 1: text after the JSON object: \{") as error:
        lines.parsed(where, file, lines.first(where, file, "json") or "")
    assert str(error.value.hint) == "write one object per line, and end lines with line feeds"
    assert "\r" not in error.value.message


@given(st.lists(st.sampled_from(["a", "bc" * 5, "", "d" * 40]), max_size=8), st.booleans())
def test_lines_longer_than_the_blocks_read_are_whole(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], ended: bool
) -> None:
    where, file = written(tmp_path_factory.mktemp("lines"), "a.json", ("\n".join(content) + "\n" * ended).encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines, "_BLOCK", 7)
        kept = [line for line in content if line]
        assert list(lines.forward(where, file, "json")) == kept
        assert list(lines.last(where, file, "json")) == kept[::-1]


class Counted:
    """A file system whose files count the bytes that are read from them."""

    def __init__(self, where: Place) -> None:
        self._fs, self.bytes = where.fs, 0

    def open_input_file(self, path: str) -> Any:
        return _Counting(self, self._fs.open_input_file(path))

    def open_input_stream(self, path: str, **more: Any) -> Any:
        return _Counting(self, self._fs.open_input_stream(path, **more))


class _Counting(io.RawIOBase):
    def __init__(self, counted: Counted, source: Any) -> None:
        self._counted, self._source = counted, source

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found: int = self._source.readinto(buffer)
        self._counted.bytes += found
        return found

    def seek(self, at: int, whence: int = io.SEEK_SET) -> int:
        found: int = self._source.seek(at, whence)
        return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts, blocks and the longest line, a thousandth of their size or less."""
    monkeypatch.setattr(lines, "PART_BYTES", 4_000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 1_000)
    monkeypatch.setattr(lines, "_BLOCK", 100)
    monkeypatch.setattr(lines, "LONGEST", 20_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("end", "cut"), [("\n", True), ("\r\n", True), ("\r\r\n", True), ("\r", False)])
def test_a_file_whose_lines_end_with_carriage_returns_is_read_once_in_blocks(
    tmp_path: Path, end: str, cut: bool
) -> None:
    rows = [[str(n), "x" * 20] for n in range(4_000)]
    where, file = written(tmp_path, "a.csv", "".join(",".join(row) + end for row in rows).encode())
    parts = list(csv_files.parts(where, [file], CsvOptions()))
    assert (len(parts) > 1) == cut
    counted, found = Counted(where), []
    for part in parts:
        told = TextPart(counted, part.path, part.name, part.size, part.start, part.end)  # type: ignore[arg-type]
        blocks = list(csv_files.blocks(CsvOptions(), told))
        assert max(len(block) for _, block in blocks) < 2_000
        found += [row.split(b",") for _, block in blocks for row in block.split()]
    assert [[a.decode(), b.decode()] for a, b in found] == rows
    assert counted.bytes < 1.1 * file.size


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("content", [b"1,a\n" + b"2,b\r" * 20_000, b"x" * 100_000], ids=["mixed", "no line end"])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, content: bytes) -> None:
    where, file = written(tmp_path, "a.csv", content)
    counted = Counted(where)
    parts = list(csv_files.parts(where, [file], CsvOptions()))
    first, *later = [
        TextPart(counted, one.path, one.name, one.size, one.start, one.end)  # type: ignore[arg-type]
        for one in parts
    ]
    for blocks in (csv_files.blocks(CsvOptions(), first), json_rows.blocks(first)):
        with pytest.raises(BadData, match=r"a\.csv: a (line is longer than|carriage return that is not part of)"):
            list(blocks)
    assert counted.bytes < 60_000
    counted.bytes = 0
    assert [block for part in later for _, block in csv_files.blocks(CsvOptions(), part)] == []
    assert counted.bytes < 1.1 * file.size
    with pytest.raises(BadData, match="a line is longer than") as refused:
        list(json_rows.blocks(TextPart(where.fs, file.path, file.name, file.size)))
    with typed(refused.value) as hint:
        hint.says("write one row per line, and end lines with line feeds")
        where, file = written(tmp_path, "a.json", b'{"id": 1}\n' * 10_000)
        part = TextPart(where.fs, file.path, file.name, file.size)
        assert sum(block.count(b"\n") for _, block in json_rows.blocks(part)) == 10_000


@pytest.mark.parametrize("hint", [PINNED, CHANGES_HINT], ids=["snapshot", "changes"])
def test_a_compressed_file_that_breaks_off_is_corrected_as_what_it_belongs_to(tmp_path: Path, hint: str) -> None:
    """A file of a pinned snapshot must not change, so that to write it again is not enough."""
    for name, content in (("a.json.gz", b'{"id": 1}\n'), ("a.csv.gz", b"1\n")):
        packed = gzip.compress(content * 1000)

        def rows(cut: int | None, name: str = name, packed: bytes = packed) -> int:
            where, file = written(tmp_path, name, packed[:cut])
            pieces = [Piece(0, part) for part in lines.parts(where, [file], cut=True)]
            made = (
                json_rows._made(TextRows(CsvOptions(), (), {"id": field("id", "long")}, hint), pieces)
                if "json" in name
                else csv_files._made(TextRows(CsvOptions(), ("c",), {"c": field("c", "string")}, hint), pieces)
            )
            return sum(batch.num_rows for batch in made)

        with pytest.raises(BadData, match=f"{name}: not a complete") as refused:
            rows(-9)
        with typed(refused.value) as asked:
            asked.says("fix the file, then" if hint == PINNED else "correct the change file")
            assert str(refused.value.hint) == str(hint)
            assert rows(None) == 1000


@pytest.mark.parametrize("left", [0, 4, 6])
def test_a_file_that_became_shorter_since_it_was_listed_is_an_error(tmp_path: Path, left: int) -> None:
    where, file = written(tmp_path, "a.json", b'{"id": 1}\n{"id": 2}\n')
    (part,) = lines.parts(where, [file], cut=True)
    Path(file.path).write_bytes(b'{"id": 1}\n'[:left])
    with pytest.raises(
        Transient, match=f"became shorter while it was read: {left} bytes, 20 were listed"
    ) as refused:
        list(json_rows.blocks(part))
    with typed(refused.value) as hint:
        hint.says(str(RETRIED))
        where, file = written(tmp_path, "a.json", b'{"id": 1}\n'[:left])
        parts = lines.parts(where, [file], cut=True)
        assert b"".join(block for part in parts for _, block in json_rows.blocks(part)) == b'{"id": 1}\n'[:left]


def test_what_is_no_json_is_refused_though_a_topic_may_hold_it(tmp_path: Path) -> None:
    told = [
        b'{"f": 1}',
        b'{"f": -Infinity}',
        b'{"f": "-Infinity"}',
        b'{"f": Infinity}',
        b'{"f":\t2}',
        b'{"s": "a\tb"}',
    ]
    where, file = written(tmp_path, "a.json", b"\n".join(told))
    columns = {"f": field("f", "double"), "s": field("s", "string")}
    pieces = [Piece(0, part) for part in lines.parts(where, [file], cut=True)]
    how = TextRows(CsvOptions(), (), columns, quarantine=True)
    kept = [row["_backfill_quarantined"] for b in json_rows._made(how, pieces) for row in b.to_pylist()]
    assert [one["line"] for one in kept if one] == [2, 4, 6]


def test_a_line_that_is_nested_too_deep_is_a_fault_of_its_own(tmp_path: Path) -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    told = [b'{"f": 1}', b'{"f":\t2, "x": %b}' % deep, b'{"f": "x", "x": %b}' % deep, b'{"f": 3}']
    where, file = written(tmp_path, "a.json", b"\n".join(told))
    pieces = [Piece(0, part) for part in lines.parts(where, [file], cut=True)]
    how = TextRows(CsvOptions(), (), {"f": field("f", "double")}, key=("f",), quarantine=True)
    kept = [row["_backfill_quarantined"] for b in json_rows._made(how, pieces) for row in b.to_pylist()]
    assert [one["line"] for one in kept if one] == [2, 3]
    with pytest.raises(BadData, match=r"a.json: line 2: nested too deep"):
        list(json_rows._made(replace(how, quarantine=False), pieces))


def test_a_row_that_stops_the_job_is_corrected_or_kept_apart(tmp_path: Path) -> None:
    """What a worker does, done here: through Spark an error comes as text."""
    where, file = written(tmp_path, "a.json", b'{"id": 1}\n{"id": "x"}\n')
    rows = TextRows(
        CsvOptions(), ("id",), {"id": field("id", "long")}, CHANGES_HINT, ("id",), way_on=OR_QUARANTINE
    )

    def made(rows: TextRows, file: File) -> list[Any]:
        pieces = [Piece(0, part) for part in lines.parts(where, [file], cut=True)]
        return [row for batch in json_rows._made(rows, pieces) for row in batch.to_pylist()]

    with pytest.raises(
        BadData, match=r"^a\.json: line 2 \(of id x\): column 'id': not a whole number: \"x\": {\"id\": \"x\"}"
    ) as caught:
        made(rows, file)
    with typed(caught.value) as hint:
        hint.says("correct the change file; it may be replaced as long as it is not applied")
        _, corrected = written(tmp_path, "a.json", b'{"id": 1}\n{"id": 2}\n')
        assert [row["id"] for row in made(rows, corrected)] == [1, 2]
        assert hint.settings() == {"upstream.on_error": "quarantine"}
        _, file = written(tmp_path, "a.json", b'{"id": 1}\n{"id": "x"}\n')
        kept = [row["_backfill_quarantined"] for row in made(replace(rows, quarantine=True), file)]
        assert [one and (one["line"], one["value"]) for one in kept] == [None, (2, b'{"id": "x"}')]
