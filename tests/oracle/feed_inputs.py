"""Generated change files of AWS DMS and of change feeds, over a load, in the forms that their writers have."""

import json
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from oracle import plain
from oracle.answer import Answer
from oracle.debezium_inputs import LOG_KEYS, TRANSFORM, arrow, good, shaped
from oracle.inputs import KEYS, Files, Input
from oracle.readers import change_feed, dms, json_text
from oracle.readers.kinds import Doubts, Kind, No
from oracle.records import drawn

COLUMNS: dict[str, Kind] = {
    "id": "bigint", "s": "string", "h": "smallint", "i": "int", "g": "float", "f": "double", "o": "boolean",
    "d": ("decimal", 10, 2), "w": ("decimal", 38, 10), "day": "date", "at": "timestamp", "wall": "timestamp_ntz",
}  # fmt: skip
SCHEMA = pa.schema([(name, arrow(kind)) for name, kind in COLUMNS.items()])
Change = tuple[str, int, int, tuple[tuple[str, str], ...]]
"""(op, version, key, column → text)."""


def pools(count: int) -> dict[str, list[str]]:
    """Texts as CSV and JSON have them, without quotes, which a form adds where it needs them."""
    found = {
        n: drawn(good(k, "us", "string"), count) for n, k in COLUMNS.items() if n not in ("id", "day", "wall")
    }
    made = {n: [json.loads(t) if t.startswith('"') else t for t in texts] for n, texts in found.items()}
    chance = random.Random(count)
    made["day"] = [
        f"{chance.randrange(1, 9999):04d}-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"
        for _ in range(count)
    ]
    made["wall"] = [f"{day}T{chance.randrange(24):02d}:00:59.{chance.randrange(10**6):06d}" for day in made["day"]]
    return made


def python(kind: Kind, text: str) -> Any:
    """A Python value for pyarrow."""
    doubts: Doubts = []
    quoted = kind in ("string", "date", "timestamp", "timestamp_ntz") or kind[0] == "decimal"
    value = json_text.value_of(kind, text if quoted else json_text.parsed(text.encode()), doubts)
    return as_python(kind, value)


def as_python(kind: Kind, value: Any) -> Any:
    import datetime as dt
    import struct
    from decimal import Decimal

    tag, content = value
    if tag in ("f4", "f8"):
        return struct.unpack(">f" if tag == "f4" else ">d", bytes.fromhex(content))[0]
    if tag == "dec":
        return Decimal(content)
    if tag == "day":
        return dt.date.fromordinal(content + plain.DAY)
    return content


@dataclass(frozen=True, repr=False)
class Feed(Input):
    """form_of_files: csv, json or parquet. files_of: changes of each file, in order of their names."""

    load: tuple[int, ...]
    files_of: tuple[tuple[Change, ...], ...]
    kind: str
    end: str
    transformed: bool
    form: ClassVar[str] = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind}, {self.end!r}, load={self.load}, {self.files_of})"

    def _options(self, changes: Mapping[str, Any], key: Mapping[str, Any]) -> Mapping[str, Any]:
        upstream = {
            "type": "files",
            "snapshot": {"path": "snapshot", "format": "parquet"},
            "changes": {"path": "changes", "format": self.form, "file_format": self.kind, **changes},
        }
        more = {"transform": TRANSFORM} if self.transformed else {}
        return {"upstream": upstream, "tables": [{"name": "t", "key": ["id"], **key}], **more}

    def files(self, number: int) -> Files:
        sink = pa.BufferOutputStream()
        rows = [{"id": number * KEYS + key, "s": "loaded"} for key in self.load]
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), sink)
        return {f"snapshot/{number:05d}.parquet": sink.getvalue().to_pybytes(), **self.log(number)}

    def log(self, number: int) -> dict[str, bytes]:
        return {
            f"changes/{number:05d}-{i}.{self.kind}": self.content(number * KEYS, changes)
            for i, changes in enumerate(self.files_of)
        }

    def content(self, base: int, changes: tuple[Change, ...]) -> bytes:
        raise NotImplementedError

    def loaded(self, number: int) -> list[plain.Row]:
        return [
            dict.fromkeys(COLUMNS) | {"id": ("int", number * KEYS + k), "s": ("text", "loaded")} for k in self.load
        ]


def parquet(marks: Mapping[str, tuple[pa.DataType, list[Any]]], base: int, changes: tuple[Change, ...]) -> bytes:
    rows = [{"id": base + key} | {n: python(COLUMNS[n], t) for n, t in texts} for _, _, key, texts in changes]
    made = pa.Table.from_pylist(rows, SCHEMA)
    for place, (name, (kind, values)) in enumerate(marks.items()):
        made = made.add_column(place, pa.field(name, kind), pa.array(values, kind))
    sink = pa.BufferOutputStream()
    pq.write_table(made, sink)
    return bytes(sink.getvalue().to_pybytes())


class DmsLog(Feed):
    form: ClassVar[str] = "dms"

    @property
    def options(self) -> Mapping[str, Any]:
        return self._options({"time_column": "ts"}, {"immutable_key": True})

    def content(self, base: int, changes: tuple[Change, ...]) -> bytes:
        stamp = "2026-01-01 00:00:00.000001"
        if self.kind == "parquet":
            ops = {"Op": (pa.string(), [op for op, *_ in changes]), "ts": (pa.string(), [stamp] * len(changes))}
            return parquet(ops, base, changes)
        lines = []
        for op, _, key, texts in changes:
            row = {"id": str(base + key)} | dict(texts)
            lines.append(",".join([op, stamp, *(cell(row.get(name), kind) for name, kind in COLUMNS.items())]))
        return self.end.join([*lines, ""] if self.end != "\n\n" else lines).encode()

    def answer(self, number: int) -> Answer:
        def read(raw: bytes) -> Any:
            if self.kind == "parquet":
                return lambda _doubts: dms.of_parquet(COLUMNS, raw)
            return lambda doubts: dms.of_csv(COLUMNS, True, False, raw, "", doubts)

        files = [(name, read(raw)) for name, raw in sorted(self.log(number).items())]
        found = dms.table("id", self.loaded(number), files)
        return shaped(found) if self.transformed else found


def cell(text: str | None, kind: Kind) -> str:
    """A CSV field as DMS writes it: quoted where it must be."""
    if text is None:
        return ""
    if text == "" or any(c in text for c in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


class FeedLog(Feed):
    form: ClassVar[str] = "change-feed"

    @property
    def options(self) -> Mapping[str, Any]:
        return self._options({"csv": {"header": True}} if self.kind == "csv" else {}, {})

    def content(self, base: int, changes: tuple[Change, ...]) -> bytes:
        if self.kind == "parquet":
            marks = {
                "_change_type": (pa.string(), [c[0] for c in changes]),
                "_commit_version": (pa.int64(), [c[1] for c in changes]),
            }
            return parquet(marks, base, changes)
        if self.kind == "json":
            return self.end.join([*(self._object(base, change) for change in changes), ""]).encode()
        lines = [",".join([*COLUMNS, "_change_type", "_commit_version"])]
        for op, version, key, texts in changes:
            row = {"id": str(base + key)} | dict(texts)
            lines.append(",".join([*(cell(row.get(n), k) for n, k in COLUMNS.items()), op, str(version)]))
        return self.end.join([*lines, ""]).encode()

    def _object(self, base: int, change: Change) -> str:
        op, version, key, texts = change
        told = {n: t if json_type(COLUMNS[n]) else json.dumps(t, ensure_ascii=False) for n, t in texts}
        members = {"id": str(base + key)} | told | {"_change_type": f'"{op}"', "_commit_version": str(version)}
        return "{" + ",".join(f'"{n}":{t}' for n, t in members.items()) + "}"

    def answer(self, number: int) -> Answer:
        files: list[tuple[str, Any]] = []
        for name, raw in sorted(self.log(number).items()):
            try:
                files.append((name, self._read(raw)))
            except No as exc:
                files.append((name, exc))
        found = change_feed.table("id", self.loaded(number), files)
        return shaped(found) if self.transformed else found

    def _read(self, raw: bytes) -> list[change_feed.Change]:
        from oracle.readers import delimited

        marks: dict[str, Kind] = {"_change_type": "string", "_commit_version": "bigint"}
        doubts: Doubts = []
        if self.kind == "parquet":
            held = pq.read_table(pa.BufferReader(raw))
            rows = [{n: plain.of_arrow(held[n][i]) for n in {**COLUMNS, **marks}} for i in range(held.num_rows)]
        elif self.kind == "json":
            lines = [line for line in raw.split(b"\n") if line.strip()]
            rows = [json_text.row_of({**COLUMNS, **marks}, json_text.parsed(line), doubts) for line in lines]
        else:
            head, *told = delimited.records(raw, False, doubts)
            names = [text for text, _ in head]
            kinds = {**COLUMNS, **marks}
            rows = [
                {n: delimited.value(kinds[n], f, "", doubts) for n, f in zip(names, one, strict=True)}
                for one in told
            ]
        return [
            (
                row["_change_type"][1],
                row["_commit_version"] and row["_commit_version"][1],
                {n: row[n] for n in COLUMNS},
            )
            for row in rows
        ]


def json_type(kind: Kind) -> bool:
    """Whether Spark writes it without quotes."""
    return kind not in ("string", "date", "timestamp", "timestamp_ntz")


def dms_log(chance: random.Random, pool: dict[str, list[str]], kind: str, transformed: bool) -> DmsLog:
    files = []
    for _ in range(chance.randrange(1, 4)):
        changes = []
        for _ in range(chance.randrange(1, 4)):
            op = chance.choice("IUUDD")
            changes.append((op, 0, chance.randrange(LOG_KEYS), texts(chance, pool, one_line=kind == "csv")))
        files.append(tuple(changes))
    load = tuple(key for key in range(LOG_KEYS) if chance.random() < 0.4)
    return DmsLog(load, tuple(files), kind, chance.choice(["\n", "\r\n"]) if kind == "csv" else "\n", transformed)


def texts(chance: random.Random, pool: dict[str, list[str]], one_line: bool) -> tuple[tuple[str, str], ...]:
    names = chance.sample(sorted(pool), chance.choice([1, 2, 3]))
    told = [(name, chance.choice(pool[name])) for name in names]
    return tuple((n, t) for n, t in told if not (one_line and ("\n" in t or "\r" in t)))


def feed_log(chance: random.Random, pool: dict[str, list[str]], kind: str, transformed: bool) -> FeedLog:
    """Versions 1 to n, some in one file; images in any order; now and then keys change, or exchange places."""
    files: list[list[Change]] = [[]]
    there = {key for key in range(LOG_KEYS) if chance.random() < 0.4}
    load = tuple(sorted(there))
    for version in range(1, chance.randrange(2, 6)):
        if files[-1] and chance.random() < 0.5:
            files.append([])
        touched = chance.sample(range(LOG_KEYS), chance.choice([1, 2]))
        made: list[Change] = []
        exchanges = len(touched) == 2 and there.issuperset(touched) and chance.random() < 0.5
        for key, to in zip(touched, reversed(touched), strict=True) if exchanges else ():
            now = texts(chance, pool, one_line=kind == "csv")
            made += [("update_preimage", version, key, ()), ("update_postimage", version, to, now)]
        for key in touched if not exchanges else ():
            now = texts(chance, pool, one_line=kind == "csv")
            if key not in there:
                made.append(("insert", version, key, now))
                there.add(key)
            elif chance.random() < 0.4:
                made.append(("delete", version, key, ()))
                there.discard(key)
            else:
                free = [other for other in range(LOG_KEYS) if other not in there and other not in touched]
                to = chance.choice(free) if free and chance.random() < 0.3 else key
                made += [("update_preimage", version, key, ()), ("update_postimage", version, to, now)]
                there = there - {key} | {to}
                if to != key:
                    break
        chance.shuffle(made)
        files[-1] += made
    return FeedLog(load, tuple(tuple(f) for f in files), kind, "\n", transformed)


def merged(logs: list[Any]) -> Any:
    """All logs in the files of one, as for Debezium's. Versions go up with the files, a hundred each."""
    files: dict[int, list[Change]] = defaultdict(list)
    for number, one in enumerate(logs):
        for file, changes in enumerate(one.files_of):
            files[file] += [(op, 100 * file + v, number * LOG_KEYS + key, row) for op, v, key, row in changes]
    load = tuple(number * LOG_KEYS + key for number, one in enumerate(logs) for key in one.load)
    return replace(logs[0], load=load, files_of=tuple(tuple(own) for _, own in sorted(files.items())))
