"""What Debezium writes beside the changes of rows: into topics of their own, or among the changes.

Heartbeats, where a transaction begins and ends (provide.transaction.metadata), changes of schemas, and messages
that a program left in the source's log (op `m`). None changes a row. A row that a transform took out of its
envelope can have members of these names, so a message is known by all of its members and by what each holds.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from backfill_cli.decode.tokens import Number, Token
from backfill_cli.model.skipped import Skipped


def _is_whole(value: Token) -> bool:
    """Whether it is a whole number, which parsers other than ours have as one of Python's."""
    return value.is_whole if isinstance(value, Number) else isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Token) -> bool:
    return isinstance(value, str) and not isinstance(value, Number)


def _is_object(value: Token) -> bool:
    return isinstance(value, dict)


def _or_null(holds: Callable[[Token], bool]) -> Callable[[Token], bool]:
    return lambda value: value is None or holds(value)


def _is_list(value: Token) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _counts(value: Token) -> bool:
    """Whether it says of tables how many changes a transaction has in each."""
    return _is_list(value) and all(
        one.keys() == {"data_collection", "event_count"} and _is_whole(one["event_count"]) for one in value
    )


class _Shape(NamedTuple):
    """needs, may: what each member holds that such a message has, or may have. It has no others."""

    what: Skipped
    needs: Mapping[str, Callable[[Token], bool]]
    may: Mapping[str, Callable[[Token], bool]]

    def fits(self, record: Mapping[str, Token]) -> bool:
        if not self.needs.keys() <= record.keys() <= self.needs.keys() | self.may.keys():
            return False
        holds = {**self.may, **self.needs}
        return all(holds[name](record[name]) for name in record)


_TIMES = {"ts_ms": _or_null(_is_whole), "ts_us": _or_null(_is_whole), "ts_ns": _or_null(_is_whole)}
_MARK = {"id": _is_text}
_NOTHING_YET = {"event_count": lambda value: value in (None, 0, "0"), "data_collections": lambda value: not value}
"""Where an encoding has no NULL (Protobuf), it is zero, and an empty list."""

_SHAPES = (
    _Shape(
        Skipped.MESSAGE,
        {"op": lambda op: op == "m", "source": _is_object, "message": _is_object},
        {**_TIMES, "transaction": _or_null(_is_object)},
    ),
    _Shape(Skipped.HEARTBEAT, {"ts_ms": _is_whole}, {}),
    _Shape(Skipped.TRANSACTION, {"status": lambda of: of == "BEGIN", **_MARK, **_NOTHING_YET}, _TIMES),
    _Shape(
        Skipped.TRANSACTION,
        {"status": lambda of: of == "END", **_MARK, "event_count": _is_whole, "data_collections": _counts},
        _TIMES,
    ),
    _Shape(
        Skipped.SCHEMA,
        {"source": _is_object, "databaseName": _or_null(_is_text), "ddl": _or_null(_is_text)},
        {
            **_TIMES,
            "schemaName": _or_null(_is_text),
            "tableChanges": _or_null(_is_list),
            "position": _or_null(_is_object),
        },
    ),
)
"""As SchemaFactory of Debezium defines their values; releases before 2 write no times in the marks."""


WORDS: Mapping[Skipped, str] = {
    Skipped.MESSAGE: "messages of the source's log",
    Skipped.HEARTBEAT: "heartbeats",
    Skipped.TRANSACTION: "marks of transactions",
    Skipped.SCHEMA: "changes of schemas",
}


def kind_of(record: Mapping[str, Token]) -> Skipped | None:
    """What a record is of these; None for an envelope of a row, or anything else."""
    return next((shape.what for shape in _SHAPES if shape.fits(record)), None)
