"""CSV files to Arrow columns of text, in Spark's Python workers: pyarrow parses what a grammar found to be sound.

pyarrow takes what stands after a closing quote, and a quote that is never closed, without a word; so blocks that
hold quotes are looked at first.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import BadData
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.formats.edge import reading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_BLOCK_BYTES = 8 << 20
_MOST_BYTES = 256 << 20
"""A record that is longer is taken for a quote that is never closed."""

_SHOWN = 200
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class CsvPart:
    """The lines of a file that begin at `start <= byte < end`; end None: to the file's end, or compressed.

    name: as listed. columns: how many fields each record has. header: whether the first record of the file, if it
    is in this part, names the columns.
    """

    fs: "FileSystem"
    path: str
    name: str
    columns: int
    header: bool
    start: int
    end: int | None


class Grammar:
    """What a sound record looks like, by the options."""

    def __init__(self, options: CsvOptions) -> None:
        self.quote, self.escape = options.quote.encode(), options.escape.encode()
        self.multi_line = options.multi_line
        quote, escape, sep = (re.escape(c.encode()) for c in (options.quote, options.escape, options.delimiter))
        ends = b"" if options.multi_line else rb"\r\n"
        if options.escape == options.quote:
            inside = b"[^%b%b]*+(?:%b%b[^%b%b]*+)*+" % (quote, ends, quote, quote, quote, ends)
        else:
            plain, after = b"[^%b%b%b]*+" % (quote, escape, ends), b"[^%b]" % ends if ends else rb"[\s\S]"
            inside = b"%b(?:%b%b%b)*+" % (plain, escape, after, plain)
        quoted, bare = b"%b%b%b" % (quote, inside, quote), rb"[^%b%b\r\n][^%b\r\n]*+" % (quote, sep, sep)
        self._field = re.compile(b"%b|%b" % (quoted, bare))
        any_field = b"(?:%b|%b|)" % (quoted, bare)
        self._records = re.compile(rb"(?:%b(?:%b%b)*+(?:\r\n|\n|\r))*+" % (any_field, sep, any_field))

    @cached_property
    def _escaped(self) -> "re.Pattern[bytes]":
        return re.compile(b"%b([%b%b])" % tuple(map(re.escape, (self.escape, self.escape, self.quote))))

    def sound(self, block: bytes) -> int:
        """Where the last whole, sound record of a block ends."""
        found = self._records.match(block)
        return found.end() if found else 0

    def doubled(self, block: bytes) -> bytes:
        """A sound block with the quotes inside quoted fields doubled, and no escapes; all else stays as it is."""
        if self.escape == self.quote or self.escape not in block:
            return block
        return self._field.sub(self._double, block)

    def _double(self, found: "re.Match[bytes]") -> bytes:
        text = found[0]
        if not text.startswith(self.quote):
            return text
        inner = self._escaped.sub(rb"\1", text[1:-1])
        return self.quote + inner.replace(self.quote, self.quote * 2) + self.quote


def batches(options: CsvOptions, part: CsvPart) -> "Iterator[pa.RecordBatch]":
    """`_file STRING, _row BIGINT` (rising along the file), then `c0, c1, …` STRING: a part's records.

    A field that is empty or holds the text of NULL is NULL, unless it stands in quotes. Raises BadData naming the
    file and what is no record of it.
    """
    import pyarrow as pa

    skip = 1 if part.header and part.start == 0 else 0
    names = [f"c{i}" for i in range(part.columns)]
    with reading(part.path, "csv"):
        for offset, block in _blocks(options, part):
            if not block.strip(b"\r\n"):
                continue
            table = parsed(block, options, names, part.path).slice(skip)
            skip = 0
            rows = pa.array(range(offset, offset + table.num_rows), pa.int64())
            files = pa.repeat(pa.scalar(part.name, pa.string()), table.num_rows)
            whole = pa.table([files, rows, *table.columns], names=["_file", "_row", *names])
            yield from whole.combine_chunks().to_batches()


def parsed(block: bytes, options: CsvOptions, names: Sequence[str], path: str) -> "pa.Table":
    """Sound records as columns of text. Raises BadData for one with more or fewer fields, or that is no UTF-8."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    try:
        return pacsv.read_csv(
            pa.BufferReader(block),
            pacsv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(names)),
            pacsv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote, newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=["", options.null_value],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as exc:
        counted = re.search(r"Expected (\d+) columns, got (\d+): (.*)", str(exc), re.DOTALL)
        if counted:
            what = f"not a line of {counted[1]} fields, but of {counted[2]}: {counted[3][:_SHOWN]}"
            raise BadData(f"{path}: {what}") from exc
        raise BadData(f"{path}: not UTF-8 text: {exc}", "write the file as UTF-8") from exc


def _blocks(options: CsvOptions, part: CsvPart) -> Iterator[tuple[int, bytes]]:
    """The part's whole records, with the byte at which each block begins."""
    grammar = Grammar(options)
    with _opened(part) as (source, at):
        held = b""
        for more, last in _chunks(source, part, at):
            block = held + more
            if last and block and not block.endswith((b"\n", b"\r")):
                block += b"\n"
            cut = _cut(grammar, part, at, block, last)
            if cut:
                yield at, grammar.doubled(block[:cut])
            held, at = block[cut:], at + cut


def _cut(grammar: Grammar, part: CsvPart, at: int, block: bytes, last: bool) -> int:
    """Up to where the block is read now; the rest waits for the next. Raises BadData where no record is sound."""
    lines = len(block) if last else block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, -1) + 1
    if grammar.quote not in block:
        return lines
    sound = grammar.sound(block if grammar.multi_line else block[:lines])
    if sound < lines and (last or not grammar.multi_line or len(block) > _MOST_BYTES):
        text = block[sound : sound + _SHOWN].decode("utf-8", "replace").splitlines()
        ends = "in the file" if grammar.multi_line else "on its line"
        raise BadData(
            f"{part.path}: a quoted field is not closed {ends}, or goes on after its quote, in the record at byte "
            f"{at + sound}: {' '.join(text)}",
            "check csv.quote and csv.escape"
            + ("" if grammar.multi_line else "; where fields hold line ends, set csv.multi_line = true"),
        )
    return sound


def _chunks(source: Any, part: CsvPart, at: int) -> Iterator[tuple[bytes, bool]]:
    """The bytes from `at` on, and whether they are the last: up to the end of the line begun before `end`."""
    while True:
        size = _BLOCK_BYTES if part.end is None else min(_BLOCK_BYTES, part.end - at)
        more = source.read(size) if size > 0 else b""
        at += len(more)
        if not more:
            yield b"", True
            return
        if part.end is not None and at >= part.end:
            yield more + _rest_of_line(source, more), True
            return
        yield more, False


def _rest_of_line(source: Any, before: bytes) -> bytes:
    rest = b""
    while not before.endswith(b"\n"):
        before = source.read(1 << 16)
        if not before:
            break
        end = before.find(b"\n") + 1
        rest += before[:end] if end else before
        if end:
            break
    return rest


@contextmanager
def _opened(part: CsvPart) -> Iterator[tuple[Any, int]]:
    """The file, where the part's first line begins, and that place."""
    if part.end is None:
        with part.fs.open_input_stream(part.path, compression="detect") as source:
            yield _Unmarked(source), 0
        return
    with part.fs.open_input_file(part.path) as source:
        begin = part.start
        if begin:
            source.seek(begin - 1)
            begin += len(_rest_of_line(source, source.read(1)))
        elif source.read(len(_BOM)) == _BOM:
            begin = len(_BOM)
        source.seek(begin)
        yield source, begin


class _Unmarked:
    """A stream less the byte order mark at its begin."""

    def __init__(self, source: Any) -> None:
        self._source, self._first = source, True

    def read(self, size: int) -> bytes:
        found: bytes = self._source.read(size)
        if self._first:
            self._first = False
            if found.startswith(_BOM):
                more: bytes = self._source.read(len(_BOM))
                return found[len(_BOM) :] + more
        return found
