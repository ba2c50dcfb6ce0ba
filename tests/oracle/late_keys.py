"""A table with random transactions, as a connector of Debezium writes them: PostgreSQL's, with its row images.

Rows are physical: a statement changes them in their order in the heap. A key that is checked row by row never has
two rows; one that is checked late has one at the end of each transaction.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

COLUMNS: dict[str, dict[str, Any]] = {
    "id": {"type": "int64", "optional": False},
    "code": {"type": "string", "optional": False},
    "state": {"type": "string", "optional": False, "default": "new"},
    "n": {"type": "int32", "optional": False, "default": 7},
    "note": {"type": "string", "optional": True},
}
IDENTITIES: dict[str, tuple[str, ...]] = {"default": ("id",), "index": ("id", "code"), "full": tuple(COLUMNS)}
"""Columns of the old row that the log has, by the table's replica identity."""


class Clash(Exception):
    """Two rows would have one key, or a row passes through a key that another row has."""


@dataclass
class Source:
    """late: whether the key is checked at the end of a transaction. base: keys are base to base + 9.

    system: whose connector it is: postgresql or oracle. identity: of IDENTITIES, or `changing`: now one,
    now another, between transactions. told: whether each event has its schema block.
    """

    chance: random.Random
    identity: str
    late: bool
    base: int
    rows: list[Row] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    lsn: int = 1000
    tokens: int = 0
    system: str = "postgresql"
    told: bool = True

    def run(self, transactions: int) -> None:
        self._commit([self._insert] * 4)
        self._commit([self._change, self._change])
        while transactions:
            kinds = self.chance.choices(
                [self._insert, self._delete, self._change, self._move, self._shift, self._swap, self._replace],
                k=self.chance.choice([1, 2, 3]),
            )
            transactions -= self._commit(kinds)

    def _commit(self, statements: list[Callable[[], None]]) -> bool:
        """Whether the statements were one transaction of the log; otherwise nothing has happened."""
        rows, events = [dict(row) for row in self.rows], len(self.events)
        self._came: dict[int, int] = {}
        if self.identity == "changing":
            self._logged = IDENTITIES[self.chance.choice(list(IDENTITIES))]
        try:
            for one in statements:
                one()
            if len({row["id"] for row in self.rows}) < len(self.rows):
                raise Clash
            codes = {event["before"]["code"] for event in self.events[events:] if event["before"]}
            if self.late and not self.told and len(codes) == 1:  # nothing says that it is no default
                raise Clash
        except Clash:
            self.rows, self.events = rows, self.events[:events]
            return False
        for event in self.events[events:]:
            event["source"]["txId"] = 1_000_000 * self.base + self.lsn
        self.lsn += 10
        return len(self.events) > events

    def _insert(self) -> None:
        self._put({"id": self._key(), "code": self._token(), "state": self._state(), "n": self.chance.randrange(9),
                   "note": self.chance.choice([None, self._token()])})  # fmt: skip

    def _put(self, row: Row) -> None:
        self.rows.append(row)
        self._check(row)
        self._came[id(row)] = row["id"]
        self._log("c", None, row)

    def _delete(self) -> None:
        if self.rows:
            self._remove(self.chance.choice(self.rows))

    def _remove(self, row: Row) -> None:
        self._leaves(row)
        self.rows = [one for one in self.rows if one is not row]
        self._log("d", row, None)

    def _replace(self) -> None:
        """A new row at a key, then the old one is deleted; where each row is checked, first the delete."""
        if self.rows:
            old = self.chance.choice(self.rows)
            new = {**old, "code": self._token(), "state": self._state()}
            for one in (lambda: self._put(new), lambda: self._remove(old))[:: 1 if self.late else -1]:
                one()

    def _change(self) -> None:
        for row in self.chance.sample(self.rows, min(len(self.rows), 2)):
            old = dict(row)
            row |= {"state": self._state(), "n": self.chance.randrange(9), "note": self._token()}
            if self.chance.random() < 0.3:
                row["code"] = self._token()
            self._log("u", old, row)

    def _move(self) -> None:
        if self.rows:
            self._rekey({self.chance.choice(self.rows)["id"]: self._key()})

    def _shift(self) -> None:
        by = self.chance.choice([-1, 1])
        self._rekey({row["id"]: row["id"] + by for row in self.rows})

    def _swap(self) -> None:
        """A rotation of two or three keys."""
        keys = self.chance.sample(
            [row["id"] for row in self.rows], min(len(self.rows), self.chance.choice([2, 3]))
        )
        self._rekey(dict(zip(keys, keys[1:] + keys[:1], strict=True)))

    def _rekey(self, keys: dict[int, int]) -> None:
        """UPDATE … SET id = …: for each row as it was when the statement began, in the order of the heap."""
        for row, to in [(row, keys[row["id"]]) for row in self.rows if row["id"] in keys]:
            if row["id"] != to:
                self._leaves(row)
                old = dict(row)
                row["id"] = to
                if self.chance.random() < 0.2:
                    row["state"] = "new"
                self._check(row)
                self._came[id(row)] = to
                self._log("d", old, None)
                self._log("c", None, row, self.lsn)

    def _check(self, row: Row) -> None:
        if not self.late and sum(one["id"] == row["id"] for one in self.rows) > 1:
            raise Clash

    def _leaves(self, row: Row) -> None:
        """A row that came to a key that another row has, and leaves it again, is not told by any image."""
        others = any(one is not row and one["id"] == row["id"] for one in self.rows)
        if others and self._came.get(id(row)) == row["id"]:
            raise Clash

    def _log(self, op: str, old: Row | None, new: Row | None, lsn: int | None = None) -> None:
        self.lsn += lsn is None
        place: dict[str, Any] = {"lsn": self.lsn}
        if self.system == "oracle":  # changes close together have one SCN
            place = {"scn": str(self.lsn // 4), "rs_id": f" 0x{self.lsn:06x}.00000001.0010 ", "ssn": 0}
        source = {"connector": self.system, "db": "d", "schema": "public", "table": "t", "ts_ms": 5, **place}
        before = None if old is None else self._image(op, old, new)
        event = {"op": op, "before": before, "after": None if new is None else dict(new), "source": source}
        self.events.append(event)

    def _image(self, op: str, old: Row, new: Row | None) -> Row | None:
        """The old row as far as the log has it; in the other columns what Kafka Connect writes for NULL."""
        told = self._logged if self.identity == "changing" else IDENTITIES[self.identity]
        if new is not None and told != IDENTITIES["full"] and all(old[name] == new[name] for name in told):
            return None
        blank = {"code": "", "state": "new", "n": 7, "note": None}
        return {name: old[name] if name in told else blank[name] for name in COLUMNS}

    def delivered(self) -> list[dict[str, Any]]:
        """The log, perhaps with a part that comes again because the connector was restarted, from any event on."""
        if self.chance.random() < 0.5:
            return self.events
        cut = self.chance.randrange(1, len(self.events) + 1)
        again = self.chance.randrange(max(0, cut - 8), cut)
        return self.events[:cut] + self.events[again:]

    def _key(self) -> int:
        return self.base + self.chance.randrange(10)

    def _state(self) -> str:
        return self.chance.choice(["new", "paid", "sent"])

    def _token(self) -> str:
        self.tokens += 1
        return f"{self.base}-{self.tokens}"


def shift(rows: int) -> Source:
    """`UPDATE t SET id = id + 1` over so many rows, whose key is checked late."""
    source = Source(random.Random(1), "full", True, 0)
    for key in range(1, rows + 1):
        source._came = {}
        source._put({"id": key, "code": f"c{key}", "state": "new", "n": key, "note": None})
        source.events[-1]["source"]["txId"] = key
    begun = len(source.events)
    source._came = {}
    source._rekey({key: key + 1 for key in range(1, rows + 1)})
    for event in source.events[begun:]:
        event["source"]["txId"] = 99
    return source
