"""What each field of a registry's schemas becomes: for `plan`."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.decode.connect import Connect, word_of
from backfill_cli.decode.resolved import field_of
from backfill_cli.model.reports import FieldRead
from backfill_cli.model.schema import Columns, shown


def fields_read(columns: Columns, schemas: Sequence[tuple[int, Sequence[Connect]]]) -> list[FieldRead]:
    """The fields by their columns, in the order of these, then those that no column takes.

    schemas: as in decoder.Found. Fields of one name and type that become one column are told once.
    """
    found: dict[tuple[str | None, str, str], list[int]] = {}
    for id, fields in schemas:
        by_name = {str(one["field"]): one for one in fields}
        taken = {}
        for column, of in columns.items():
            if (one := field_of(column, of, by_name)) is not None:
                taken[str(one["field"])] = column
        for name, one in by_name.items():
            found.setdefault((taken.get(name), name, spelled(one)), []).append(id)
    order: list[str | None] = [*columns, None]
    return [
        FieldRead(column, None if column is None else shown(columns[column]["type"]), name, kind, tuple(ids))
        for (column, name, kind), ids in sorted(found.items(), key=lambda one: order.index(one[0][0]))
    ]


def spelled(told: Connect) -> str:
    """A field's type, for display, in its writer's words: `int64`, `Decimal(10,2)`, `array of string`."""
    kind, name = str(word_of(told)), str(told.get("name") or "").rpartition(".")[2]
    parameters: Mapping[str, Any] = told.get("parameters") or {}
    if name and told.get("type") != "struct":
        digits = [str(parameters[one]) for one in ("connect.decimal.precision", "scale") if one in parameters]
        return f"{name}({','.join(digits)})" if digits else name
    if told.get("type") == "array":
        return f"array of {spelled(told.get('items') or {})}"
    if told.get("type") == "map":
        return f"map of {spelled(told.get('values') or {})}"
    return kind
