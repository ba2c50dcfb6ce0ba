"""Generated change files of Debezium whose rows lack members, or have more than they should; what holds of them.

A table's columns only become more. A line is bad if it lacks a column that an earlier line or the snapshot has, if
it has one that is not among those at its file's end, or if its row lacks what its own schema block lists.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

TYPES = {"id": "int64", "op": "string", "before": "string", "n": "int64", "source": "string", "after": "int64"}
FIRST, LATER, ODD = ("id", "op", "before", "n"), ("source", "after"), "zz"
"""Columns of the snapshot, those that are added, in this order, and a member that no column is called like."""

Row = dict[str, Any]
File = list[bytes]


@dataclass
class Answer:
    """rows: by id. bad: (file, line) of each bad line. stop: the first file that cannot follow; None: all can."""

    rows: dict[Any, Row] = field(default_factory=dict)
    bad: list[tuple[int, int]] = field(default_factory=list)
    columns: tuple[str, ...] = FIRST
    stop: int | None = None


def answer(files: Sequence[File]) -> Answer:
    found = Answer()
    for number, lines in enumerate(files):
        if not _applied(found, number, [json.loads(line or b"null") for line in lines]):
            found.stop = number
            break
    return found


def _applied(found: Answer, number: int, lines: Sequence[Any]) -> bool:
    told = [names for line in lines if (names := _names(line))]
    end = told[-1] if told else set(found.columns)
    in_blocks = any("schema" in line for line in lines[:1] if line)
    if set(found.columns) - end or (not in_blocks and end - set(found.columns) - set(LATER)):
        return False
    seen = set(found.columns)
    for at, line in enumerate(lines, 1):
        if line is None:
            continue
        names = _names(line) or set()
        if _is_bad(line, seen, end, in_blocks):
            found.bad.append((number, at))
        else:
            _apply(found.rows, line.get("payload", line), names)
        seen |= names & end
    found.columns += tuple(name for name in (*LATER, ODD) if name in end and name not in found.columns)
    return True


def _names(line: Any) -> set[str] | None:
    if line is None:
        return None
    if "schema" in line:
        return {one["field"] for one in line["schema"]["fields"][0]["fields"]}
    return set(line["after"]) if line["after"] is not None else None


def _is_bad(line: Any, seen: set[str], end: set[str], in_blocks: bool) -> bool:
    told, change = ("schema" in line), line.get("payload", line)
    after, before = change["after"], change["before"]
    names = _names(line)
    if in_blocks and not told:
        return True
    if any(image is not None and image.get("id") is None for image in (before, after)):
        return True
    if told and names - end:
        return True
    if after is None:
        return False
    if told:
        return bool((seen | names) - set(after) or valued(after) & end - names)
    return bool(seen - names or names - end)


def valued(after: Row) -> set[str]:
    return {name for name, value in after.items() if value is not None}


def _apply(rows: dict[Any, Row], change: Any, names: set[str]) -> None:
    if change["before"] is not None:
        rows.pop(change["before"]["id"], None)
    if change["after"] is not None:
        rows[change["after"]["id"]] = {name: value for name, value in change["after"].items() if name in names}


# Records of a topic


@dataclass(frozen=True)
class Topic:
    """What a topic's columns are. allowed: None: any. known: whether samples told them by their schema blocks."""

    allowed: frozenset[str] | None
    required: frozenset[str]
    known: bool = False

    def row(self, line: Any) -> Row | None:
        """The row after a change, by FIRST; empty for a delete, None for a record that must not be read."""
        change, names = line.get("payload", line), _names(line) or set()
        after, before = change["after"], change["before"]
        if any(image is not None and image.get("id") is None for image in (before, after)):
            return None
        if "schema" in line:
            allowed = names if self.allowed is None else self.allowed
            if names - allowed or (not self.known and set(FIRST) - names):
                return None
            if after is not None and valued(after) & set(FIRST) - names:
                return None
        elif self.allowed is not None and names - self.allowed:
            return None
        if after is None:
            return {}
        wanted = self.required | (names & set(FIRST) if "schema" in line else set())
        return None if wanted - set(after) else {name: after.get(name) for name in FIRST}


# The generator


def drawn(chance: random.Random) -> list[File]:
    """One to three files of up to eight lines."""
    columns, in_blocks, rate = list(FIRST), chance.random() < 0.4, chance.choice([0.0, 0.1, 0.3])
    later, files = list(LATER), []
    for _ in range(chance.randrange(1, 4)):
        lines: File = []
        count = chance.randrange(1, 9)
        for at in range(count):
            if later and chance.random() < 0.1:
                columns.append(later.pop(0))
            middle = 0 < at < count - 1
            told = in_blocks != (middle and chance.random() < 0.05)
            lines.append(line(chance, columns, told, rate))
            if chance.random() < 0.08:
                lines.append(chance.choice([b"", b"null"]))
        files.append(lines)
    return files


def line(chance: random.Random, columns: Sequence[str], told: bool, rate: float) -> bytes:
    op = chance.choice("ccuuud")
    names = _changed(chance, columns, rate) if chance.random() < 0.5 else list(columns)
    key = chance.randrange(5)
    before = _row(chance, names, key if op == "d" or chance.random() < 0.7 else chance.randrange(5), rate)
    change: dict[str, Any] = {
        "before": before if op == "d" or (op == "u" and chance.random() < 0.5) else None,
        "after": None if op == "d" else _row(chance, names, key, rate),
        "source": {"table": "t", "n": None, chance.choice([ODD, *columns]): chance.choice([None, 5])},
        "op": op,
        "transaction": chance.choice([None, {"id": "x", "zz": None}]),
    }
    if chance.random() < 0.2:
        change = dict(sorted(change.items(), key=lambda _: chance.random()))
    if told:
        fields = [{"field": name, "type": TYPES.get(name, "string"), "optional": True} for name in names]
        images = [{"field": image, "type": "struct", "fields": fields} for image in ("after", "before")]
        change = {"schema": {"type": "struct", "fields": images}, "payload": change}
    separators = (",", ":") if chance.random() < 0.7 else (", ", ": ")
    return json.dumps(change, separators=separators, ensure_ascii=chance.random() < 0.5).encode()


def _row(chance: random.Random, names: Sequence[str], key: int, rate: float) -> Row:
    made: Row = {name: _value(chance, name) for name in names}
    if "id" in made and chance.random() > rate / 4:
        made["id"] = key
    mine = _changed(chance, list(made), rate) if chance.random() < 0.3 else list(made)
    if chance.random() < 0.2:
        chance.shuffle(mine)
    return {name: made[name] if name in made else _value(chance, name) for name in mine}


def _value(chance: random.Random, name: str) -> Any:
    if chance.random() < 0.5 or name == "id":
        return None
    if TYPES.get(name) == "int64":
        return chance.randrange(-5, 5)
    return chance.choice(["x", "", "é", '"n":null', '{"after":{"n":null}}', "},"])


def _changed(chance: random.Random, names: Sequence[str], rate: float) -> list[str]:
    """The names, perhaps without one, perhaps with one more."""
    made = list(names)
    if len(made) > 1 and chance.random() < rate:
        made.remove(chance.choice(made[1:] if chance.random() < 0.8 else made))
    if chance.random() < rate / 2:
        made.insert(chance.randrange(len(made) + 1), chance.choice([ODD, ODD, *LATER]))
    return list(dict.fromkeys(made))
