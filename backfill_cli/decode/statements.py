"""What a statement of MySQL's does to tables as a whole, which no record of a row says, by the words of its SQL.

Writers name one table of a statement, if any. The words that stand where names can stand are taken for tables: too
many rather than too few, as a job that reads one of them stops.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"/\*!\d*|\*/|/\*.*?\*/|--(?=\s)[^\n]*|#[^\n]*|'(?:[^'\\]|\\.|'')*'"
    r'|`(?P<quoted>(?:[^`]|``)+)`|"(?P<ansi>(?:[^"]|"")+)"|(?P<word>[^\W]+(?:\$[\w$]*)?|\$[\w$]*)|(?P<dot>\.)|\S',
    re.DOTALL,
)
"""Comments and texts are left out; what stands in `/*! … */` is executed, so it is read."""

_DATABASE = ("DATABASE", "SCHEMA")
_PARTS = ("PARTITION", "TABLESPACE")
_LOSES_PARTS = ("TRUNCATE", "DROP", "EXCHANGE", "DISCARD", "IMPORT")
_DEFINES = ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "VIEW")
"""What a statement creates or alters that has others in it: those are not executed then."""
_RESTORES = ("RECOVER", "FLASHBACK")
"""Of a TABLE, TiDB's. TiCDC sends none about a database, and of FLASHBACK CLUSTER the rows."""
_RENAMES_INSIDE = ("COLUMN", "INDEX", "KEY", "CONSTRAINT")


class Effect(NamedTuple):
    """databases: those that are dropped. tables: full names of those that may lose rows, or be others afterwards.

    temporary: whether what is dropped are temporary tables, of which there are no records. restores: whether a
    table that was dropped has its rows again: the record's, too, as a statement may name none (`BY JOB`).
    """

    databases: frozenset[str]
    tables: frozenset[str]
    temporary: bool
    restores: bool = False


class _Name(NamedTuple):
    """parts: one, or database and table. key: the name as a keyword, empty if it is quoted."""

    parts: tuple[str, ...]
    key: str


def _names(sql: str) -> Iterator[_Name]:
    """Each word, and words with a dot between them as one."""
    parts: list[str] = []
    key, joins = "", False
    for found in _TOKEN.finditer(sql):
        text = next((one for one in found.group("quoted", "ansi", "word") if one is not None), None)
        if text is None:
            joins = found["dot"] is not None
            continue
        if joins and parts:
            parts, key = [*parts, _plain(found, text)], ""
        else:
            if parts:
                yield _Name(tuple(parts), key)
            parts, key = [_plain(found, text)], text.upper() if found["word"] is not None else ""
        joins = False
    if parts:
        yield _Name(tuple(parts), key)


def _plain(found: "re.Match[str]", text: str) -> str:
    return text if found["word"] is not None else text.replace("``", "`").replace('""', '"')


def effect(sql: str, database: str) -> Effect:
    """What a statement does that was executed in this database."""
    names = list(_names(sql))
    keys = [name.key for name in names]
    if (
        keys[:1] in (["CREATE"], ["ALTER"])
        and next((key for key in keys if key in (*_DEFINES, "TABLE")), "") in _DEFINES
    ):
        return Effect(frozenset(), frozenset(), False)
    databases: set[str] = set()
    restores = keys[1:2] == ["TABLE"] and keys[0] in _RESTORES
    loses, temporary = restores, False
    for at, (key, after) in enumerate(zip(keys, [*keys[1:], ""], strict=True)):
        if key == "DROP" and after in _DATABASE:
            those = [name.parts[-1] for name in names[at + 2 :] if name.key not in ("IF", "EXISTS")]
            databases.update(those[:1])
        temporary = temporary or (key == "DROP" and after == "TEMPORARY")
        loses = loses or (key in _LOSES_PARTS and after in (*_PARTS, "TABLE", "TABLES"))
        loses = loses or (key == "REPLACE" and after == "TABLE" and keys[0] == "CREATE")
        loses = loses or (key == "TRUNCATE" and at == 0) or (key == "RENAME" and after not in _RENAMES_INSIDE)
    if not loses:
        return Effect(frozenset(databases), frozenset(), temporary)
    full = [".".join((database, *name.parts)[-2:]) for name in names]
    return Effect(frozenset(databases), frozenset(full) | {name.lower() for name in full}, temporary, restores)
