"""Converts CSV files to Arrow columns of text in Spark's Python workers: pyarrow parses what a grammar checked.

pyarrow silently accepts text after a closing quote, and a quote that is never closed; therefore blocks with quotes
are checked first.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, BadData
from backfill_cli.spark.failures import RENAME_HINT, reading
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import lines
from backfill_cli.upstreams.files.reading.text_parts import TextPart, chunks, opened

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 200
_LONE_RETURN = re.compile(rb"\r(?!\n)")


class Grammar:
    """What a sound (well-formed) record looks like under the options."""

    def __init__(self, options: CsvOptions) -> None:
        self.quote, self.escape = options.quote.encode(), options.escape.encode()
        self.multi_line, self.at = options.multi_line, options.at
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
        record = b"%b(?:%b%b)*+" % (any_field, sep, any_field)
        self._records = re.compile(rb"(?:%b(?:\r\n|\n|\r))*+" % record)
        # pyarrow skips empty lines, so CR CR LF (a line end that Windows converted twice) is one line end
        self.feeds = re.compile(rb"(?:\r*%b(?:\r*\n|\r+\Z))*+" % record)
        self.returns = re.compile(rb"(?:%b\r(?!\n))*+" % record)

    @cached_property
    def _escaped(self) -> "re.Pattern[bytes]":
        return re.compile(b"%b([%b%b])" % tuple(map(re.escape, (self.escape, self.escape, self.quote))))

    def sound(self, block: bytes) -> int:
        """Where the last complete, sound record of a block ends."""
        found = self._records.match(block)
        return found.end() if found else 0

    def doubled(self, block: bytes) -> bytes:
        """A sound block in which quotes inside quoted fields are doubled, not escaped; all else is the same."""
        if self.escape == self.quote or self.escape not in block:
            return block
        return self._field.sub(self._double, block)

    def _double(self, found: "re.Match[bytes]") -> bytes:
        text = found[0]
        if not text.startswith(self.quote):
            return text
        inner = self._escaped.sub(rb"\1", text[1:-1])
        return self.quote + inner.replace(self.quote, self.quote * 2) + self.quote


def batches(
    options: CsvOptions, columns: int, part: TextPart, hint: str = RENAME_HINT
) -> "Iterator[pa.RecordBatch]":
    """A part's records: `own.FILE STRING, own.ROW BIGINT` (increasing along the file), then `c0, c1, …` STRING.

    columns: how many fields each record has. With a header the file's first record names them and is skipped.
    An unquoted field that is empty or holds the text of NULL is NULL. Raises BadData naming the file and the
    malformed record. hint: of a damaged file.
    """
    import pyarrow as pa

    skip = 1 if options.header and part.start == 0 else 0
    names = [f"c{i}" for i in range(columns)]
    with reading(part.path, "csv", hint):
        for offset, block in blocks(options, part):
            if not block.strip(b"\r\n"):
                continue
            table = parsed(block, options, names, part.path).slice(skip)
            skip = 0
            rows = pa.array(range(offset, offset + table.num_rows), pa.int64())
            files = pa.repeat(pa.scalar(part.name, pa.string()), table.num_rows)
            whole = pa.table([files, rows, *table.columns], names=[own.FILE, own.ROW, *names])
            yield from whole.combine_chunks().to_batches()


def parsed(block: bytes, options: CsvOptions, names: Sequence[str], path: str) -> "pa.Table":
    """Sound records as columns of text. Raises BadData for one that has more or fewer fields or is not UTF-8."""
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
            what = f"expected {counted[1]} fields, found {counted[2]}: {counted[3][:_SHOWN]}"
            raise BadData(
                f"{path}: {what}",
                f"correct the line; fields that contain the delimiter must be quoted{options.then}",
            ) from exc
        raise BadData(f"{path}: not UTF-8 text: {exc}", f"write the file as UTF-8{options.then}") from exc


def blocks(options: CsvOptions, part: TextPart) -> Iterator[tuple[int, bytes]]:
    """The part's complete records in blocks, each with the byte at which it begins."""
    grammar = Grammar(options)
    ends: Sequence[re.Pattern[bytes]] = (grammar.feeds, grammar.returns)
    with opened(part) as (source, at):
        held = b""
        for more, last in chunks(source, part, at):
            block = held + more
            if last and block and not block.endswith((b"\n", b"\r")):
                fed = block + b"\n"
                block = fed if _ends_left(grammar, ends, fed) else block + b"\r"
            cut = _cut(grammar, part, at, block, last)
            left = _ends_left(grammar, ends, block[:cut])
            if not left:
                told = ends[0].match(block)
                alone = told.end() if told else 0
                raise BadData(
                    f"{part.path}: a carriage return that is not part of a line end, in the record at byte "
                    f"{at + alone}: {_text(block[alone:])}",
                    f"quote the field that contains it and set {options.at}.multi_line = true; or use one kind of "
                    f"line end in the whole file{options.then}",
                )
            ends = left
            if not cut and len(block) > lines.LONGEST:
                raise lines.too_long(part.path)
            if cut:
                yield at, grammar.doubled(block[:cut])
            held, at = block[cut:], at + cut


def _ends_left(
    grammar: Grammar, ends: "Sequence[re.Pattern[bytes]]", block: bytes
) -> "Sequence[re.Pattern[bytes]]":
    """The line ends out of `ends` that match every line of a sound block.

    pyarrow takes any lone carriage return for a line end, even if lines end with line feeds.
    """
    if not block:
        return ends
    if _LONE_RETURN.search(block) is None:
        return [end for end in ends if end is grammar.feeds]
    return [end for end in ends if (found := end.match(block)) is not None and found.end() == len(block)]


def _cut(grammar: Grammar, part: TextPart, at: int, block: bytes, last: bool) -> int:
    """How much of the block is read now; the rest waits for the next one. Raises BadData for an unsound record."""
    ended = len(block) if last else block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, -1) + 1
    if grammar.quote not in block:
        return ended
    whole = block if last else block.removesuffix(b"\r")  # a line feed may follow in the next block
    sound = grammar.sound(whole if grammar.multi_line else block[:ended])
    if sound < ended and (last or not grammar.multi_line or len(block) > lines.LONGEST):
        ends = "in the file" if grammar.multi_line else "on its line"
        too = (
            "" if grammar.multi_line else f", and with {grammar.at}.multi_line = true if fields contain line ends"
        )
        raise BadData(
            f"{part.path}: a quoted field is not closed {ends}, or has text after its closing quote, in the "
            f"record at byte {at + sound}: {_text(block[sound:])}",
            f"{START_OVER}, with {grammar.at}.quote and {grammar.at}.escape set to what the file uses{too}",
        )
    return sound


def _text(block: bytes) -> str:
    """The beginning of a record, for display."""
    return " ".join(block[:_SHOWN].decode("utf-8", "replace").splitlines())
