"""JSON lines as Hypothesis draws them: single values, and whole files as people and programs leave them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st

from oracle import values
from oracle.answer import Answer
from oracle.inputs import KEYS, Files, Input
from oracle.readers import json_lines

NESTED = {
    "bin": "BINARY",
    "arr": "ARRAY<INT>",
    "obj": "STRUCT<a: TINYINT, b: ARRAY<STRUCT<s: STRING, d: DECIMAL(5,2)>>>",
    "map": "MAP<STRING, DOUBLE>",
}
TYPES = values.TEXT_TYPES | NESTED
SCHEMA = "id BIGINT, " + ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
SMALL = "id BIGINT, a STRING, b INT"


def snapshot(schema: str) -> Mapping[str, Any]:
    return {"upstream": {"type": "files", "snapshot": {"path": "in", "format": "json", "schema": schema}}}


@dataclass(frozen=True)
class JsonCell(Input):
    """A file of one line, in which one column holds `text`, as JSON writes it; the others are null."""

    column: str
    text: str
    form: ClassVar[str] = "json"

    @property
    def options(self) -> Mapping[str, Any]:
        return snapshot(SCHEMA)

    def files(self, number: int) -> Files:
        others = "".join(f', "{name}": null' for name in TYPES if name != self.column)
        line = f'{{"id": {number * KEYS}, "{self.column}": {self.text}{others}}}\n'
        return {f"in/{number}.json": line.encode("utf-8", "surrogatepass")}

    def answer(self, number: int) -> Answer:
        return json_lines.read(self.files(number), SCHEMA)

    @property
    def kinds(self) -> tuple[str, ...]:
        return (TYPES[self.column],)


@dataclass(frozen=True)
class JsonFile(Input):
    """A file as it stands; `#` is the number of the input, so that keys of several differ."""

    content: bytes
    form: ClassVar[str] = "json"

    @property
    def options(self) -> Mapping[str, Any]:
        return snapshot(SMALL)

    def files(self, number: int) -> Files:
        return {f"in/{number}.json": self.content.replace(b"#", str(number).encode())}

    def answer(self, number: int) -> Answer:
        return json_lines.read(self.files(number), SMALL)

    @property
    def kinds(self) -> tuple[str, ...]:
        return ("whole files",)

    @property
    def alone(self) -> bool:
        shown = all(f'"{name}"'.encode() in self.content for name in ("id", "a", "b"))
        return not shown or not self.content.strip()


def cells() -> st.SearchStrategy[JsonCell]:
    return st.sampled_from(list(TYPES)).flatmap(
        lambda name: st.builds(JsonCell, st.just(name), written(TYPES[name]))
    )


def written(kind: str) -> st.SearchStrategy[str]:
    """JSON texts for a column of this type."""
    if kind in NESTED.values():
        return _nested(kind)
    told = values.of(kind)
    if kind in ("STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"):
        surrogates = st.sampled_from(
            ['"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"a\\u0000b"', '"\\/"', "7", "{}"]
        )
        return told.map(json.dumps) | told.map(lambda t: json.dumps(t, ensure_ascii=False)) | surrogates
    odd = ["null", "NaN", "-Infinity", '""', "[]", "{}", '"x"', "1.0", "1e2"]
    return st.one_of(told, told, told, st.sampled_from(odd), told.map(json.dumps))


def _nested(kind: str) -> st.SearchStrategy[str]:
    odd = st.sampled_from(["null", "[]", "{}", '"x"', "1"])
    if kind == "BINARY":
        import base64

        return st.binary(max_size=9).map(lambda b: json.dumps(base64.b64encode(b).decode())) | odd
    if kind.startswith("ARRAY"):
        return st.lists(written("INT"), max_size=3).map(lambda parts: f"[{', '.join(parts)}]") | odd
    if kind.startswith("MAP"):
        pairs = st.tuples(values.text().map(json.dumps), written("DOUBLE"))
        return st.lists(pairs, max_size=3).map(_object) | odd
    inner = st.tuples(written("STRING"), values.decimal(5, 2)).map(
        lambda p: _object([('"s"', p[0]), ('"d"', p[1])])
    )
    listed = st.lists(inner | st.just("null"), max_size=2).map(lambda parts: f"[{', '.join(parts)}]")
    both = st.tuples(written("TINYINT"), listed).map(lambda p: _object([('"a"', p[0]), ('"b"', p[1])]))
    return both | odd


def _object(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"


def files() -> st.SearchStrategy[JsonFile]:
    """Lines of many kinds, joined by several line ends, with and without a last one and a BOM."""
    texts = (
        values.text().filter(lambda text: "#" not in text).map(lambda text: json.dumps(text, ensure_ascii=False))
    )
    numbers = st.none() | st.integers(-(2**31), 2**31 - 1)
    good = st.builds(
        lambda n, a, b: f'{{"id": #00{n}, "a": {a}, "b": {json.dumps(b)}}}', st.integers(0, 9), texts, numbers
    )
    lines = st.lists(good, min_size=1, max_size=6, unique_by=lambda line: line.split(",")[0])
    odd = st.sampled_from(ODD_LINES)
    mixed = st.tuples(lines, odd, st.integers(0, 6)).map(lambda p: [*p[0][: p[2]], p[1], *p[0][p[2] :]])
    content = st.tuples(
        st.one_of(lines, lines, mixed),
        st.sampled_from(["\n", "\n", "\r\n", "\n\n"]),
        st.booleans(),
        st.sampled_from(["", "", "", "\ufeff"]),
    ).map(lambda p: p[3] + p[1].join(p[0]) + (p[1] if p[2] else ""))
    return content.map(lambda text: JsonFile(text.encode("utf-8", "surrogatepass")))


ODD_LINES = [
    '{"id": #091, "a": "x", "b": 1} {"id": #092, "a": "y", "b": 2}',
    '{"id": #091, "a": "x", "b": 1}{"id": #092, "a": "y", "b": 2}',
    '{"id": #091, "a": "x", "b": 1},',
    '[{"id": #091, "a": "x", "b": 1}]',
    '{"id": #091, "a": "x", "b": 1',
    '{"id": #091, "a": "x", "b": 1} x',
    '{"id": #091, "a": "x", "b": 1} // c',
    "{'id': #091, 'a': 'x', 'b': 1}",
    '{id: #091, a: "x", b: 1}',
    '{"id": #091, "a": "x", "a": "y", "b": 1}',
    '{"id": #091, "A": "x", "b": 1}',
    '{"id": #091, "a": "x", "b": 1, "c": {"d": [1]}}',
    '{"id": #091, "b": 1}',
    '{"id": #091, "a": "x", "b": 01}',
    '{"id": #091, "a": "x", "b": 1.}',
    '{"id": #091, "a": "tab\there", "b": 1}',
    '{"id": #091, "a": "\\x41", "b": 1}',
    '  {"id": #091, "a": "x", "b": 1}  ',
    "   ",
    "null",
    "7",
    '{"id": #091, "a": "' + "y" * 140_000 + '", "b": 1}',
    '{"id": #091, "a": "' + "z" * 1_100_000 + '", "b": 1}',
]

_QUOTED = ("txt", "day", "at", "wall")
_PLAIN = {name: json.dumps(text) if name in _QUOTED else text for name, text in values.PLAIN.items()} | {
    "bin": '"AAECAw=="',
    "arr": "[1, null]",
    "obj": '{"a": 1, "b": [{"s": "x", "d": 1.5}, null]}',
    "map": '{"k": 1.5, "": null}',
}

EXAMPLES = [
    *(JsonCell(name, text) for name, text in _PLAIN.items()),
    *(JsonCell(name, "null") for name in TYPES),
    JsonFile(b""),
    JsonFile(b"\n \n"),
    JsonFile(b"\xef\xbb\xbf"),
    JsonFile(b'\xef\xbb\xbf{"id": #001, "a": "x", "b": 1}'),
    JsonFile(b'{"id": #001, "aa": "x", "b": 1}\n'),
    JsonFile(b'{"id": #001, "a": "\xff", "b": 1}\n'),
    JsonCell("f32", '1e39, "txt2": "information"'),
    JsonCell("map", '{"I": 1}'),
    JsonFile(b'{"id": #001, "a": "x", "b": 1}\r{"id": #002, "a": "y", "b": 2}\r'),
    JsonFile('{"id": #001, "a": "x", "b": 1}\n'.encode("utf-16")),
    *(JsonFile(b'{"id": #001, "a": "x", "b": 1}\n' + line.encode() + b"\n") for line in ODD_LINES),
    *(
        JsonCell(column, text)
        for column, text in [
            ("i8", "200"), ("f64", "1e400"), ("f32", "1e39"), ("dec", "1.555"), ("dec", "12345678.00"),
            ("txt", '"\\ud800"'), ("txt", '"\\u0000"'),
            ("day", '"10000-01-01"'), ("wall", '"2026-01-01T00:00:00Z"'),
            ("at", '"2026-01-01T00:00:00.1234567Z"'), ("f64", "-0.0"), ("f64", "NaN"), ("f64", '"NaN"'),
            ("i64", "9223372036854775808"), ("bin", '"?"'), ("map", '{"k": 1, "k": 2}'), ("obj", '{"a": 200}'),
            ("arr", "[1, 2147483648]"), ("txt", '{"x":  1.10}'), ("txt", "1.10"), ("f32", "3.4028235677973366e38"),
        ]
    ),
]  # fmt: skip
"""Each was wrong once, or is what people ask about."""
