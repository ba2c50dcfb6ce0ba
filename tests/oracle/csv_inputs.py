"""CSV as Hypothesis draws it: single fields, and whole files as programs leave them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from hypothesis import strategies as st

from oracle import values
from oracle.answer import Answer
from oracle.inputs import KEYS, Files, Input
from oracle.readers import csv_text
from oracle.readers.csv_text import Options

TYPES = values.TEXT_TYPES
SCHEMA = "id BIGINT, " + ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
SMALL = "id BIGINT, a STRING, b INT"


def snapshot(schema: str, options: Options) -> Mapping[str, Any]:
    told = {"path": "in", "format": "csv", "schema": schema, "csv": asdict(options)}
    return {"upstream": {"type": "files", "snapshot": told}}


@dataclass(frozen=True)
class CsvCell(Input):
    """A file of a header and one line, in which one column holds `text`; the others are empty."""

    column: str
    text: str
    quoted: bool
    settings: Options = field(default_factory=Options)
    form: ClassVar[str] = "csv"

    @property
    def options(self) -> Mapping[str, Any]:
        return snapshot(SCHEMA, self.settings)

    def files(self, number: int) -> Files:
        text = '"' + self.text.replace('"', '""') + '"' if self.quoted else self.text
        fields = [str(number * KEYS), *(text if name == self.column else "" for name in TYPES)]
        content = ",".join(["id", *TYPES]) + "\n" + ",".join(fields) + "\n"
        return {f"in/{number}.csv": content.encode("utf-8", "surrogatepass")}

    def answer(self, number: int) -> Answer:
        return csv_text.read(self.files(number), SCHEMA, self.settings)

    @property
    def kinds(self) -> tuple[str, ...]:
        return (TYPES[self.column],)


@dataclass(frozen=True)
class CsvFile(Input):
    """A file as it stands; `#` is the number of the input, so that keys of several differ."""

    content: bytes
    settings: Options = field(default_factory=Options)
    form: ClassVar[str] = "csv"

    @property
    def options(self) -> Mapping[str, Any]:
        return snapshot(SMALL, self.settings)

    def files(self, number: int) -> Files:
        return {f"in/{number}.csv": self.content.replace(b"#", str(number).encode())}

    def answer(self, number: int) -> Answer:
        return csv_text.read(self.files(number), SMALL, self.settings)

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("whole files",)

    @property
    def alone(self) -> bool:
        """An empty snapshot is another thing than one empty file in it; a header of its own order too."""
        return self.content.count(b"\n") < 2


def cells() -> st.SearchStrategy[CsvCell]:
    settings = st.sampled_from([Options(), Options(multi_line=True)])

    def of(name: str) -> st.SearchStrategy[CsvCell]:
        return st.builds(CsvCell, st.just(name), values.of(TYPES[name]), st.booleans(), settings)

    return st.sampled_from(list(TYPES)).flatmap(of)


PIECES = [
    "a",
    "b c",
    "",
    '"',
    '""',
    ",",
    "\n",
    "\r\n",
    "\r",
    "\\",
    '\\"',
    "'",
    " ",
    "\t",
    "#1",
    "é",
    "\x00",
    "null",
]


def files() -> st.SearchStrategy[CsvFile]:
    """Files that a writer made, by any options; and files of pieces that mean something, in any order."""
    return written() | pieces()


def written() -> st.SearchStrategy[CsvFile]:
    """Rows of hostile texts, written by RFC 4180."""
    settings = st.builds(
        Options, header=st.booleans(), delimiter=st.sampled_from([",", ";", "\t", "|"]), multi_line=st.booleans()
    )
    text = st.lists(st.sampled_from([p for p in PIECES if "#" not in p]), max_size=5).map("".join) | st.none()
    rows = st.lists(st.tuples(text, st.none() | st.integers(-9, 9)), max_size=5)
    ends = st.tuples(st.sampled_from(["\n", "\n", "\r\n"]), st.booleans(), st.sampled_from(["", "", "\ufeff"]))

    def file(settings: Options, rows: list[tuple[str | None, int | None]], ends: tuple[str, bool, str]) -> CsvFile:
        end, last, bom = ends
        lines = [settings.delimiter.join(["id", "a", "b"])] if settings.header else []
        for index, (text, number) in enumerate(rows):
            quoted = "" if text is None else '"' + text.replace('"', '""') + '"'
            lines.append(settings.delimiter.join([f"#00{index}", quoted, "" if number is None else str(number)]))
        content = bom + end.join(lines) + (end if last and lines else "")
        return CsvFile(content.encode(), settings)

    return st.builds(file, settings, rows, ends)


def pieces() -> st.SearchStrategy[CsvFile]:
    settings = st.sampled_from([Options(), Options(multi_line=True)])
    body = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)

    def file(settings: Options, middle: str, last: bool) -> CsvFile:
        end = "\n" if last else ""
        return CsvFile(f"id,a,b\n#001,x,1\n#002,{middle},2\n#003,y,3{end}".encode(), settings)

    return st.builds(file, settings, body, st.booleans())


_HEADERS = ["id, a ,b", "id,a", "id,a,b,c", "id,A,b", "b,a,id", "id,aa,b", "id,a,a", "", '"id","a","b"', "id;a;b"]
EXAMPLES = [
    *(CsvCell(column, text, quoted) for column, text in values.PLAIN.items() for quoted in (False, True)),
    CsvFile(b""),
    CsvFile(b"id,a,b\n"),
    CsvFile(b"id,a,b"),
    CsvFile(b"\xef\xbb\xbfid,a,b\n#001,x,1\n"),
    CsvFile(b"id,a,b\r#001,x,1\r#002,y,2\r"),
    CsvFile(b"id,a,b\n#001,\xff,1\n"),
    CsvFile(b"id,a,b\r\r\n#001,x,1\r\r\n#002,y,2\r\r\n"),
    CsvFile(b'id,a,b\n#001,"x\ny",1\n#002,"x\r\ny",1\n', Options(multi_line=True)),
    CsvFile(b'id,a,b\n#001,"x\r\n#002,y",1\n', Options(multi_line=True)),
    CsvFile(b'id,a,b\n#001,"x,1\n#002,y",2\n'),
    CsvFile(b'id,a,b\n#001,x,1\n#002,"y,2\n#003,z,3\n'),
    CsvFile(b'id,a,b\n#001,x,1\n#002,"y,2\n#003,z,3\n', Options(multi_line=True)),
    CsvFile(b"id,a,b\n#001,x,1\n\n\n#002,y,2\n"),
    CsvFile(b"id,a,b\n#001,x,1\n   \n#002,y,2\n"),
    CsvFile(b'id,a,b\n#001,"x"z,1\n'),
    CsvFile(b'id,a,b\n#001,x"z,1\n'),
    CsvFile(b"id,a,b\n#001,x\n#002,y,2,3\n"),
    CsvFile(b"id,a,b\n#001," + b"x" * 140_000 + b",1\n"),
    CsvFile(b"id,a,b\n#001," + b"x" * 1_100_000 + b",1\n"),
    CsvFile(b'id,a,b\n#001,"' + b"x\n" * 600_000 + b'",1\n', Options(multi_line=True)),
    CsvFile(b"id,a,b\n#001,\\N,1\n#002,N,\\N\n", Options(null_value="\\N")),
    CsvFile(b'id,a,b\n#001,"x\\"y",1\n#002,"x",2\n', Options(escape="\\")),
    CsvFile(b"id,a,b\n#001,'x,y',1\n", Options(quote="'", escape="'")),
    CsvFile("id,a,b\n#001,x,1\n".encode("utf-16")),
    *(CsvFile(f"{header}\n#001,x,1\n#002,y,2\n".encode()) for header in _HEADERS),
    *(CsvFile(f"{header}\r\n#001,x,1\r\n".encode(), Options(multi_line=True)) for header in _HEADERS),
    *(
        CsvCell(column, text, False)
        for column, text in [
            ("i8", "200"), ("f64", "1e400"), ("f32", "1e39"), ("f32", "-1e39"), ("dec", "1.555"), ("f64", "NaN"),
            ("dec", "12345678"), ("day", "10000-01-01"), ("wall", "2026-01-01T00:00:00Z"), ("flag", "maybe"),
            ("at", "2026-01-01T00:00:00.1234567"), ("txt", "__backfill_empty__"), ("txt", "\x00"), ("i32", " 5"),
            ("dec", "1.5E3"), ("big", "1E-10"), ("big", "0E-10"), ("dec", "1.234E+1"), ("dec", "1E+8"),
            ("i32", "5.0"), ("i64", "9223372036854775808"), ("f64", "-0.0"), ("f32", "0x1p3"), ("i32", "٣"),
        ]
    ),
]  # fmt: skip
"""Each was wrong once, or is what people ask about."""
