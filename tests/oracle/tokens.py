"""JSON texts of single values, drawn by type: good ones, the extremes, one beyond, and those of other types."""

import base64
import datetime as dt
import json
import random
from functools import cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from oracle.inputs import SEED, TIMES
from oracle.readers.kinds import BITS, Kind
from oracle.records import drawn

Texts = SearchStrategy[str]

COLUMNS: dict[str, Kind] = {
    "s": "string", "b": "tinyint", "h": "smallint", "i": "int", "l": "bigint", "g": "float", "f": "double",
    "o": "boolean", "d": ("decimal", 10, 2), "w": ("decimal", 38, 10), "z": ("decimal", 38, 0), "day": "date",
    "at": "timestamp", "wall": "timestamp_ntz", "x": "binary", "a": ("array", ("decimal", 5, 2)),
    "ai": ("array", "int"), "as": ("array", "string"), "m": ("map", "int"), "ms": ("map", "string"),
    "t": ("struct", (("n", "bigint"), ("s", "string"), ("at", "timestamp_ntz"))),
}  # fmt: skip
"""Every kind of type that a config's DDL can name, and the sink can hold."""

HOSTILE_TEXT = (
    "", " ", "null", "NULL", "\\N", "NaN", "true", "0", "-0.0", "1e400", "\x00", "a\x00b", "\ufeff", "\ufeffx",
    "\r",
    "\n", "\r\n", "a\rb", "\t", '"', '""', "'", "\\", "\\\\", "\u2028", "\u0085", "ü", "😀", "e\u0301", "\ud7ff",
    "\uffff", "{}", "[]", '{"a": 1}', "</script>", ",", ";", "a,b", "#", "--", "2026-01-31", "__debezium",
)  # fmt: skip

FOREIGN = ('"x"', "5", "1.5", "true", "[]", "{}", "[1]", '{"n": 1}', '""', "-1", '"5"', '"\\ud800"', '"a\\udc00"')


def strings() -> SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(HOSTILE_TEXT),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        st.sampled_from(["x" * 1000, "ü" * 3000]),
    )


def quoted(value: str, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only)


def text() -> Texts:
    return st.builds(quoted, strings(), st.booleans())


def whole(bits: int) -> Texts:
    edge = 1 << (bits - 1)
    near = [0, 1, -1, edge - 1, -edge, edge, -edge - 1, 2 * edge - 1, 2 * edge, 200]
    return st.one_of(
        st.sampled_from(near).map(str),
        st.integers(-edge, edge - 1).map(str),
        st.sampled_from(["-0", "1.0", "1e2", "10E-1", "1.5", "1e400", "0.0"]),
    )


def real(kind: str) -> Texts:
    named = [
        "0.0", "-0.0", "0", "-0", "1e400", "-1e400", "1e39", "3.4028235e38", "3.4028236e38", "3.5e38", "1e-45",
        "1e-46",
        "4.9e-324", "1e-400", "1.7976931348623157e308", "1.7976931348623159e308", "0.1", "16777217",
        "9007199254740993",
        "1.000000059604644775390625", "1.00000005960464477539062500001", '"NaN"', '"Infinity"', '"-Infinity"',
    ]  # fmt: skip
    width = 32 if kind == "float" else 64
    return st.one_of(
        st.sampled_from(named), st.floats(width=width, allow_nan=False, allow_infinity=False).map(repr)
    )


def decimals(digits: int, scale: int) -> Texts:
    most = 10**digits - 1

    def told(unscaled: int, quote: bool) -> str:
        body = str(abs(unscaled)).rjust(scale + 1, "0")
        made = ("-" if unscaled < 0 else "") + (f"{body[:-scale]}.{body[-scale:]}" if scale else body)
        return f'"{made}"' if quote else made

    beyond = [
        "1e40",
        "1e400",
        "0." + "0" * scale + "1",
        "1e2",
        "1.10",
        "1E+2",
        "-0",
        "0e5",
        '"1e2"',
        '"+1"',
        '" 1"',
        str(4 * 10 ** (digits - scale)),
        f'"{4 * 10 ** (digits - scale)}"',
    ]
    return st.one_of(
        st.builds(told, st.sampled_from([0, 1, -1, most, -most, most + 1, -most - 1]), st.booleans()),
        st.builds(told, st.integers(-most, most), st.booleans()),
        st.sampled_from(beyond),
    )


def days() -> SearchStrategy[str]:
    return st.one_of(
        st.dates().map(dt.date.isoformat),
        st.sampled_from(["0001-01-01", "9999-12-31", "1582-10-10", "1500-02-29", "2024-02-29", "2023-02-29",
                         "2026-1-5", "2026-00-01", "0000-01-01", "+10000-01-01", "2026-01-31T00:00:00"]),
    )  # fmt: skip


def moments(zones: list[str]) -> SearchStrategy[str]:
    def told(at: dt.datetime, places: int, blank: bool, zone: str) -> str:
        fraction = f".{at.microsecond:06d}"[: places + 1] if places else ""
        return (
            at.strftime("%Y").rjust(4, "0")
            + at.strftime(f"-%m-%d{' ' if blank else 'T'}%H:%M:%S")
            + fraction
            + zone
        )

    return st.one_of(
        st.builds(told, st.datetimes(), st.sampled_from([0, 3, 6]), st.booleans(), st.sampled_from(zones)),
        st.sampled_from(["2026-01-31T23:59:59.9999999", "2026-01-31T24:00:00", "2026-02-30T00:00:00",
                         "2026-01-31T00:00:00.123456000"]).map(lambda t: t + zones[0]),
    )  # fmt: skip


@cache
def of(kind: Kind) -> Texts:
    """A JSON text for a column of this type: mostly one that it can hold."""
    return st.one_of(_mostly(kind), _mostly(kind), _mostly(kind), st.just("null"), st.sampled_from(FOREIGN))


def _mostly(kind: Kind) -> Texts:
    if isinstance(kind, tuple):
        return _inner(kind)
    if kind in BITS:
        return whole(BITS[kind])
    if kind in ("float", "double"):
        return real(kind)
    made: dict[str, Texts] = {
        "string": text(),
        "boolean": st.sampled_from(["true", "false"]),
        "binary": st.binary(max_size=20).map(lambda raw: f'"{base64.b64encode(raw).decode()}"'),
        "date": days().map(json.dumps),
        "timestamp": moments(["Z", "+02:00", "-11:30", ""]).map(json.dumps),
        "timestamp_ntz": moments(["", "", "Z", "+02:00"]).map(json.dumps),
    }
    return made[kind]


def _inner(kind: Kind) -> Texts:
    if kind[0] == "decimal":
        return decimals(kind[1], kind[2])
    if kind[0] == "array":
        return st.lists(of(kind[1]), max_size=3).map(lambda found: f"[{', '.join(found)}]")
    if kind[0] == "map":
        pairs = st.lists(st.tuples(text(), of(kind[1])), max_size=3)
        return pairs.map(lambda found: "{" + ", ".join(f"{name}: {one}" for name, one in found) + "}")
    members = st.tuples(*(st.tuples(st.just(name), of(inner)) for name, inner in kind[1]))
    return members.map(lambda found: "{" + ", ".join(f'"{name}": {one}' for name, one in found) + "}")


def records(columns: dict[str, Kind], count: int) -> list[str]:
    """JSON objects of one to three of the columns: every type's drawn values, each at least once, put together.

    Hypothesis draws the values; putting objects together by it as well would cost twenty times as much.
    """
    pool = {name: drawn(of(kind), max(40, count // 20)) for name, kind in columns.items()}
    chance = random.Random(SEED)
    firsts = [(name, text) for name, texts in pool.items() for text in texts]
    chance.shuffle(firsts)
    return [_object(chance, pool, *firsts[i % len(firsts)]) for i in range(int(count * TIMES))]


def _object(chance: random.Random, pool: dict[str, list[str]], name: str, text: str) -> str:
    more = chance.sample(sorted(pool.keys() - {name}), chance.choice([0, 0, 1, 2]))
    members = {name: text} | {other: chance.choice(pool[other]) for other in more}
    return "{" + ", ".join(f'"{n}": {t}' for n, t in members.items()) + "}"
