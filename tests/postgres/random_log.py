"""Transactions at random over four tables that differ in key and replica identity, as text that a server runs.

None can fail: what may violate a constraint is in a block that takes the violation for nothing, which is a
savepoint that is rolled back. Columns come, and defaults, and other things change their names; replica identities
change, and partitions come and go.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

Draw = random.Random
Value = Callable[[Draw], str]

TYPES = (
    "CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'Happy')",
    "CREATE DOMAIN feeling AS mood",
)
"""What the tables need, beside themselves."""


def whole(draw: Draw) -> str:
    return draw.choice(["NULL", "0", str(draw.randrange(-99, 99))])


def big(draw: Draw) -> str:
    """Often stored out of line."""
    return draw.choice(["NULL", "''", "'small'", *[f"repeat('{draw.randrange(100, 1000)}', 800)"] * 4])


def moment(draw: Draw) -> str:
    return draw.choice(["NULL", f"'20{draw.randrange(10, 60)}-03-09 02:30:00.00000{draw.randrange(10)}+05:30'"])


def floating(draw: Draw) -> str:
    return draw.choice(["NULL", "'NaN'", "'-0'", "'Infinity'", "1e-300", str(draw.random())])


def exact(draw: Draw) -> str:
    return draw.choice(["NULL", "-0.01", f"{draw.randrange(-(10**6), 10**6)}.5"])


def mood(draw: Draw) -> str:
    return draw.choice(["NULL", "'sad'", "'it''s ok'", "'Happy'"])


def document(draw: Draw) -> str:
    return draw.choice(["NULL", "'{}'", "'null'", f"""'{{"a": [{draw.randrange(9)}, "x\\\\y"]}}'"""])


def words(draw: Draw) -> str:
    return draw.choice(["NULL", "''", "' '", "'NULL'", "'o''clock'", "'a\\b'", "'ä😀'", f"'{draw.randrange(99)}'"])


REGIONS = ("'e'", "'o''w'")
"""Values of `region` whose partition comes and goes."""

LATER = {"int": whole, "text": words, "numeric(9,2)": exact, "timestamptz": moment, "mood": mood}
"""Types of columns that are added, with their values."""


@dataclass
class Table:
    """key, columns: by name, values at random as SQL. whole_old: whether an old row in the log has all columns.
    identities: what may follow REPLICA IDENTITY, the present one first. parts: its partitions without others.
    """

    name: str
    create: Sequence[str]
    key: dict[str, Value]
    columns: dict[str, Value]
    identities: Sequence[str] = ("DEFAULT", "FULL")
    whole_old: bool = False
    parts: Sequence[str] = ()
    casts: dict[str, str] = field(default_factory=dict)

    def at(self, values: Sequence[str]) -> str:
        pairs = zip(self.key, values, strict=True)
        return " AND ".join(f"{name}{self.casts.get(name, '')} = {value}" for name, value in pairs)


def tables() -> list[Table]:
    return [
        Table(
            "a",
            (
                "CREATE TABLE a (v int, id int PRIMARY KEY, w text NOT NULL DEFAULT 'w', big text)",
                "ALTER TABLE a ALTER big SET STORAGE EXTERNAL",
            ),
            {"id": lambda draw: str(draw.randrange(40))},
            {"v": whole, "big": big},
        ),
        Table(
            "b",
            (
                'CREATE TABLE b (k text COLLATE "en-US-x-icu", big text, n feeling, v numeric(9, 2), '
                "at timestamptz, PRIMARY KEY (n, k))",
                "ALTER TABLE b ALTER big SET STORAGE EXTERNAL",
                "ALTER TABLE b REPLICA IDENTITY FULL",
            ),
            {
                "n": lambda draw: draw.choice(["'sad'", "'it''s ok'", "'Happy'"]),
                "k": lambda draw: draw.choice(
                    ["''", "'a'", "'A'", "'ä'", "'b'", "'it''s'", "'x\\'", "'z'", "'co-op'"]
                ),
            },
            {"v": exact, "at": moment, "big": big},
            ("FULL", "DEFAULT"),
            whole_old=True,
            casts={"n": "::mood"},
        ),
        Table(
            "c",
            (
                "CREATE TABLE c (id bigserial PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, "
                "code varchar(9) NOT NULL, mood mood, big text, doc jsonb, r float8, UNIQUE (code) INCLUDE (r))",
                "ALTER TABLE c ALTER big SET STORAGE EXTERNAL",
                "CREATE UNIQUE INDEX c_wide ON c (code, id)",
                "ALTER TABLE c REPLICA IDENTITY USING INDEX c_code_r_key",
            ),
            {"code": lambda draw: f"'c{draw.randrange(30)}'"},
            {"mood": mood, "big": big, "doc": document, "r": floating},
            ("USING INDEX c_code_r_key", "USING INDEX c_wide", "FULL"),
        ),
        Table(
            "d",
            (
                "CREATE TABLE d (v int, id int, region text, big text, PRIMARY KEY (region, id)) "
                "PARTITION BY LIST (region)",
                "ALTER TABLE d ALTER big SET STORAGE EXTERNAL",
                "CREATE TABLE d_n PARTITION OF d FOR VALUES IN ('n') PARTITION BY RANGE (id)",
                "CREATE TABLE d_low PARTITION OF d_n FOR VALUES FROM (MINVALUE) TO (6)",
                "CREATE TABLE d_high PARTITION OF d_n DEFAULT",
                # its columns are in another order
                "CREATE TABLE d_s (big text, region text NOT NULL, v int, id int NOT NULL)",
                "ALTER TABLE d ATTACH PARTITION d_s FOR VALUES IN ('s')",
                "CREATE TABLE d_rest PARTITION OF d DEFAULT",
            ),
            {
                "region": lambda draw: draw.choice(["'n'", "'s'", *REGIONS, "'else'"]),
                "id": lambda draw: str(draw.randrange(12)),
            },
            {"v": whole, "big": big},
            parts=("d_low", "d_high", "d_s", "d_rest"),
        ),
    ]


def guarded(*statements: str) -> str:
    """All of them, or none if a key would be there twice."""
    body = "; ".join(statements)
    return f"DO $$BEGIN {body}; EXCEPTION WHEN unique_violation THEN NULL; END$$"


class Transactions:
    """Draws transactions. truncates: of tables, or else changes of their columns: both between two looks are
    refused, as nothing tells them from values that changed. alone: nobody else has one open, so that tables may be
    locked.
    """

    def __init__(self, draw: Draw, truncates: bool) -> None:
        self.draw, self.truncates, self.tables = draw, truncates, tables()
        self.fresh = self.added = 0
        self.attached: dict[str, str] = {}  # by value of `region`, the partition
        self.undo: list[Callable[[], object]] = []  # of what this transaction changes here

    def transaction(self, alone: bool = True) -> str:
        """Up to 50 statements; one in ten is rolled back whole."""
        draw = self.draw
        found: list[str] = []
        if alone and not self.truncates and draw.random() < 0.15:
            found += self.ddl()
        if alone and draw.random() < 0.08:
            found += draw.choice([self.identity, self.partition])()
        most = draw.choice([1, 3, 10, 49 - len(found)])
        while len(found) < most:
            found += self.step(alone)
        end = "ROLLBACK" if draw.random() < 0.1 else "COMMIT"
        while end == "ROLLBACK" and self.undo:
            self.undo.pop()()
        self.undo.clear()
        return "; ".join(["BEGIN", *found[:49], "SET CONSTRAINTS ALL IMMEDIATE", end])

    def step(self, alone: bool) -> list[str]:
        draw = self.draw
        table = draw.choice(self.tables)
        if draw.random() < 0.1:
            inner = [one for _ in range(draw.randrange(1, 4)) for one in self.action(table)]
            return ["SAVEPOINT s", *inner, draw.choice(["ROLLBACK TO s", "ROLLBACK TO s", "RELEASE s"])]
        if alone and self.truncates and draw.random() < 0.02:
            emptied = draw.choice(["a", "b", "c", "d", "a, c", "b, c, d"])
            return ["SET CONSTRAINTS ALL IMMEDIATE", f"TRUNCATE {emptied}", "SET CONSTRAINTS ALL DEFERRED"]
        if draw.random() < 0.03:
            return [f"SELECT pg_logical_emit_message({draw.choice(['true', 'false'])}, 'of others', 'anything')"]
        return self.action(table)

    def action(self, table: Table) -> list[str]:
        draw = self.draw
        acts = [self.insert] * 4 + [self.upsert, self.update, self.update, self.touch, self.move, self.move]
        acts += [self.exchange, self.shift, self.delete, self.replace, self.merge, self.born, self.number]
        return list(draw.choice(acts)(table))

    # -- what a transaction is made of --

    def keys(self, table: Table) -> list[str]:
        return [value(self.draw) for value in table.key.values()]

    def some(self, table: Table) -> str:
        """A condition of one row, or of several."""
        if self.draw.random() < 0.6:
            return table.at(self.keys(table))
        text = " || ".join(f"{name}::text" for name in table.key)
        return f"abs(hashtext({text})) % 7 = {self.draw.randrange(7)}"

    def row(self, table: Table, key: Sequence[str]) -> tuple[str, str]:
        """Names and values, some columns left out at times."""
        given = {name: value(self.draw) for name, value in table.columns.items() if self.draw.random() < 0.9}
        names = [*table.key, *given]
        return ", ".join(names), ", ".join([*key, *given.values()])

    def insert(self, table: Table) -> Iterator[str]:
        for _ in range(self.draw.choice([1, 1, 3])):
            names, values = self.row(table, self.keys(table))
            there = f"ON CONFLICT ({', '.join(table.key)}) DO NOTHING"
            yield f"INSERT INTO {table.name} ({names}) VALUES ({values}) {there}"

    def changed(self, table: Table) -> str:
        """Columns of a SET, unchanged large values among those that it leaves out."""
        names = self.draw.sample(list(table.columns), self.draw.randrange(1, len(table.columns)))
        return ", ".join(f"{name} = {table.columns[name](self.draw)}" for name in names)

    def upsert(self, table: Table) -> Iterator[str]:
        names, values = self.row(table, self.keys(table))
        yield (
            f"INSERT INTO {table.name} ({names}) VALUES ({values}) "
            f"ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {self.changed(table)}"
        )

    def update(self, table: Table) -> Iterator[str]:
        yield f"UPDATE {table.name} SET {self.changed(table)} WHERE {self.some(table)}"

    def touch(self, table: Table) -> Iterator[str]:
        name = self.draw.choice(list(table.columns))
        yield f"UPDATE {table.name} SET {name} = {name} WHERE {self.some(table)}"

    def sent(self, table: Table) -> str:
        """The large value, where a row that moves would lack it in the log."""
        return "" if table.whole_old else f", big = {big(self.draw)}"

    def moved(self, table: Table, key: Sequence[str], where: str) -> str:
        to = ", ".join(f"{name} = {value}" for name, value in zip(table.key, key, strict=True))
        return f"UPDATE {table.name} SET {to}{self.sent(table)} WHERE {where}"

    def move(self, table: Table) -> Iterator[str]:
        yield guarded(self.moved(table, self.keys(table), table.at(self.keys(table))))

    def exchange(self, table: Table) -> Iterator[str]:
        """Two rows' keys, by way of a third one."""
        one, two, third = self.keys(table), self.keys(table), self.keys(table)
        third[-1] = {"a": "-1", "b": "'between'", "c": "'between'", "d": "-1"}[table.name]
        steps = [(third, one), (one, two), (two, third)]
        yield guarded(*(self.moved(table, to, table.at(key)) for to, key in steps))

    def shift(self, table: Table) -> Iterator[str]:
        """Several rows at once, each over the next one's key, where the order of the rows lets it."""
        by = self.draw.choice(["1", "-1", "20", "-20"])
        if table.name == "a":
            which = f"id < 9000 AND id % 3 = {self.draw.randrange(3)}"
            yield guarded(f"UPDATE a SET id = id + {by}{self.sent(table)} WHERE {which}")
        elif table.name == "b":
            yield guarded(f"UPDATE b SET n = 'sad'{self.sent(table)} WHERE k = {self.keys(table)[1]}")
        elif table.name == "d":
            to = self.draw.choice([f"id = id + {by}", f"region = {self.keys(table)[0]}", "id = -id, region = 's'"])
            yield guarded(
                f"UPDATE d SET {to}{self.sent(table)} WHERE id < 9000 AND id % 3 = {self.draw.randrange(3)}"
            )
        else:
            yield guarded(
                f"UPDATE c SET code = code || 'x'{self.sent(table)} WHERE {self.some(table)} AND length(code) < 5"
            )

    def delete(self, table: Table) -> Iterator[str]:
        yield f"DELETE FROM {table.name} WHERE {self.some(table)}"

    def replace(self, table: Table) -> Iterator[str]:
        key = self.keys(table)
        names, values = self.row(table, key)
        yield f"DELETE FROM {table.name} WHERE {table.at(key)}"
        yield f"INSERT INTO {table.name} ({names}) VALUES ({values})"

    def merge(self, table: Table) -> Iterator[str]:
        key = self.keys(table)
        names, values = self.row(table, key)
        then = self.draw.choice([f"UPDATE SET {self.changed(table)}", "DELETE"])
        yield (
            f"MERGE INTO {table.name} USING (SELECT 1) one ON {table.at(key)} WHEN MATCHED THEN {then} "
            f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        )

    def born(self, table: Table) -> Iterator[str]:
        """A new row that moves, its large value unsent."""
        self.fresh += 1
        key = self.keys(table)
        key[-1] = str(10_000 + self.fresh) if table.name in "ad" else f"'f{self.fresh}'"
        names, values = self.row(table, key)
        to = ", ".join(f"{name} = {value}" for name, value in zip(table.key, self.keys(table), strict=True))
        yield f"INSERT INTO {table.name} ({names}) VALUES ({values})"
        yield guarded(f"UPDATE {table.name} SET {to} WHERE {table.at(key)}")

    def number(self, table: Table) -> Iterator[str]:
        """Two rows exchange what is unique at the end alone: no key of the job."""
        ends = "SELECT min(id) FROM c UNION SELECT max(id) FROM c"
        yield f"UPDATE c SET id = (SELECT min(id) + max(id) FROM c) - id WHERE id IN ({ends})"

    # -- what changes about the tables --

    def ddl(self) -> list[str]:
        draw, table = self.draw, self.draw.choice(self.tables)
        later = [name for name in table.columns if name.startswith("later_")]
        if len(later) < 3 and draw.random() < 0.4:
            self.added += 1
            name, kind = f"later_{self.added}", draw.choice(list(LATER))
            table.columns[name] = LATER[kind]
            self.undo.append(lambda: table.columns.pop(name))
            at_once = [f"ALTER TABLE {table.name} ALTER {name} SET DEFAULT {LATER[kind](draw)}"]
            return [
                f"ALTER TABLE {table.name} ADD COLUMN {name} {kind}",
                *(at_once if draw.random() < 0.5 else []),
            ]
        if later and draw.random() < 0.5:
            name = draw.choice(later)
            default = draw.choice(["DROP DEFAULT", f"SET DEFAULT {table.columns[name](draw)}"])
            return [f"ALTER TABLE {table.name} ALTER {name} {default}"]
        self.added += 1
        n, t = self.added, table.name
        storage, index = draw.choice(["EXTENDED", "EXTERNAL"]), f"other_{n}"
        found = [
            ["ALTER TABLE a ALTER w DROP NOT NULL"],
            ["ALTER TABLE c ALTER code TYPE varchar(90)"],
            [f"ALTER TABLE {t} ALTER big SET STORAGE {storage}"],
            [f"ALTER TABLE {t} ALTER big SET STATISTICS {draw.randrange(100)}"],
            [
                f"CREATE INDEX {index} ON {t} (big)",
                f"ALTER INDEX {index} RENAME TO new_{n}",
                f"DROP INDEX new_{n}",
            ],
            [
                f"CREATE TABLE o_{n} (LIKE {t})",
                f"ALTER TABLE o_{n} RENAME TO n_{n}",
                f"INSERT INTO n_{n} TABLE {t}",
            ],
            [
                f"ALTER TABLE {t} ADD CONSTRAINT k_{n} CHECK (true)",
                f"ALTER TABLE {t} RENAME CONSTRAINT k_{n} TO c_{n}",
            ],
            [f"COMMENT ON TABLE {t} IS 'number {n}'", f"LOCK TABLE {t}"],
            [f"CREATE STATISTICS s_{n} ON {', '.join([*table.key, 'big'])} FROM {t}"],
        ]
        return draw.choice(found)

    def identity(self) -> list[str]:
        """A table's old rows are in the log by other columns from here on, those of each of its partitions too."""
        table = self.draw.choice(self.tables)
        chosen, before = self.draw.choice(table.identities), (table.identities, table.whole_old)
        table.identities = (chosen, *(one for one in table.identities if one != chosen))
        table.whole_old = chosen == "FULL"
        self.undo.append(lambda: table.__dict__.update(identities=before[0], whole_old=before[1]))
        return [f"ALTER TABLE {one} REPLICA IDENTITY {chosen}" for one in (table.name, *table.parts)]

    def partition(self) -> list[str]:
        """One comes, or goes, without rows: those that it has then are in no log."""
        table, region = self.tables[3], self.draw.choice(REGIONS)
        before = (table.parts, dict(self.attached))
        self.undo.append(lambda: table.__dict__.update(parts=before[0]))
        self.undo.append(lambda: self.__dict__.update(attached=before[1]))
        emptied = f"DELETE FROM d WHERE region = {region}"
        if (name := self.attached.pop(region, None)) is not None:
            table.parts = [one for one in table.parts if one != name]
            after = self.draw.choice(
                [f"DROP TABLE {name}", f"INSERT INTO {name} (id, region) VALUES (1, 'of none')"]
            )
            return [emptied, f"ALTER TABLE d DETACH PARTITION {name}", after]
        self.added += 1
        self.attached[region] = name = f"d_{self.added}"
        table.parts = [*table.parts, name]
        return [
            emptied,
            f"CREATE TABLE {name} (LIKE d INCLUDING ALL)",
            f"ALTER TABLE {name} REPLICA IDENTITY {table.identities[0]}",
            f"ALTER TABLE d ATTACH PARTITION {name} FOR VALUES IN ({region})",
        ]
