"""Generated JSON Schemas, and documents that fit them by the jsonschema package: exact, or refused by name."""

import json
import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import jsonschema

from backfill_cli.contracts.decoder import Asked
from backfill_cli.decode import json_rows, resolved
from backfill_cli.decode.json_schema import JsonSchema
from backfill_cli.decode.registered import Described, Seen
from backfill_cli.decode.tokens import parsed
from backfill_cli.errors import BackfillError
from backfill_cli.formats.schemas import Unsupported, of_ddl
from oracle import json_schema_types, typed
from oracle.inputs import SEED, TIMES

SCHEMAS, DOCUMENTS = 250, 12
Schema = Any
SCALARS: Mapping[str, list[Any]] = {
    "integer": [0, -1, 2**31, 2**53 + 1, -(2**63), 2.0, -1e10],
    "number": [0, -1, 0.5, 1e300, -0.1],
    "string": ["", "a", "1", "null", "ä€"],
    "boolean": [True, False],
}


class Drawing:
    """Draws schemas, and documents that may fit them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.definitions: dict[str, Schema] = {}

    def any(self, depth: int) -> Schema:
        draws = [self._scalar, self._scalar, self._list, self._refined, self._odd]
        if depth > 0:
            draws += [self._object, self._array, self._map, self._reference, self._choice, self._all]
        draw = self.chance.choice(draws)
        return draw(depth - 1)

    def _scalar(self, depth: int) -> Schema:
        return {"type": self.chance.choice(list(SCALARS))}

    def _list(self, depth: int) -> Schema:
        kinds = self.chance.sample([*SCALARS, "null"], self.chance.choice((1, 2, 2, 3)))
        return {"type": kinds}

    def _refined(self, depth: int) -> Schema:
        kind = self.chance.choice(list(SCALARS))
        some = self.chance.sample(SCALARS[kind], 1)
        told = self.chance.choice(
            [{"enum": some}, {"const": some[0]}, {"oneOf": [{"const": one} for one in some]}, {"anyOf": [{}]}]
        )
        return {"type": kind, **told} if self.chance.random() < 0.7 else told

    def _odd(self, depth: int) -> Schema:
        return self.chance.choice([True, {}, {"type": "null"}, {"not": {}}, {"type": "object"}])

    def _object(self, depth: int) -> Schema:
        names = self.chance.sample(["a", "b", "c", "A"], self.chance.randrange(1, 4))
        made: dict[str, Any] = {"type": "object", "properties": {name: self.any(depth) for name in names}}
        more: list[dict[str, Any]] = [
            {"additionalProperties": self.chance.choice([True, False, {}, {"type": "string"}])},
            {"required": names[:1]},
            {"patternProperties": {"^x": self.any(depth)}},
            {"allOf": [{"properties": {"d": self.any(depth)}}]},
            {"anyOf": [{"required": names[:1]}, {"required": names[-1:]}]},
            {"oneOf": [{"properties": {"d": self.any(depth)}}, {"properties": {"e": {"type": "string"}}}]},
            {"if": {"required": names[:1]}, "then": {"properties": {"d": {"type": "integer"}}}},
        ]
        return made | self.chance.choice([*([{}] * 6), *more])

    def _array(self, depth: int) -> Schema:
        return self.chance.choice([{"type": "array", "items": self.any(depth)}] * 4 + [{"type": "array"}])

    def _map(self, depth: int) -> Schema:
        return {"type": "object", "additionalProperties": self.any(depth)}

    def _reference(self, depth: int) -> Schema:
        name = f"d{len(self.definitions)}"
        self.definitions[name] = True
        self.definitions[name] = self.any(depth)
        beside = self.chance.choice([{}, {}, {}, {"type": "string"}, {"description": "x"}])
        return {"$ref": f"#/definitions/{name}", **beside}

    def _choice(self, depth: int) -> Schema:
        parts = [self.any(depth) for _ in range(self.chance.choice((1, 1, 2)))]
        if self.chance.random() < 0.7:
            parts.insert(self.chance.randrange(len(parts) + 1), {"type": "null"})
        beside = self.chance.choice([{}, {}, {}, {"properties": {"d": {"type": "string"}}}])
        return {self.chance.choice(("oneOf", "anyOf")): parts, **beside}

    def _all(self, depth: int) -> Schema:
        return {"allOf": [self.any(depth) for _ in range(self.chance.choice((1, 1, 2)))]}

    def value(self, told: Schema, depth: int) -> Any:
        """One that may fit."""
        chance = self.chance
        if not isinstance(told, dict) or chance.random() < 0.03 or depth > 8:
            return chance.choice([None, 1, "x", {}, {"d": "y", "x": 1}, []])
        if "$ref" in told:
            return self.value(self.definitions[told["$ref"].rpartition("/")[2]], depth + 1)
        for part in ("oneOf", "anyOf", "allOf"):
            if part in told and "type" not in told:
                return self.value(chance.choice(told[part]), depth + 1)
        if "enum" in told or "const" in told:
            return chance.choice(told.get("enum") or [told.get("const")])
        kind = told.get("type")
        kind = chance.choice(kind) if isinstance(kind, list) else kind
        if kind in SCALARS:
            return chance.choice(SCALARS[kind])
        if kind == "array":
            return [self.value(told.get("items", {}), depth + 1) for _ in range(chance.randrange(3))]
        if kind != "object":
            return None
        found = {
            n: self.value(one, depth + 1) for n, one in told.get("properties", {}).items() if chance.random() < 0.8
        }
        inner = told.get("additionalProperties")
        if isinstance(inner, dict) and inner:
            found |= {name: self.value(inner, depth + 1) for name in ("p", "q")[: chance.randrange(3)]}
        if any(part in told for part in ("patternProperties", "allOf", "oneOf", "if")):
            found |= chance.choice([{}, {"d": chance.choice(["y", 1])}, {"x1": 1}])
        return found


def test_documents_that_fit_their_schema_are_exact_or_refused_by_name() -> None:
    chance = random.Random(SEED)
    exact = refused = 0
    for _ in range(int(SCHEMAS * TIMES)):
        drawing = Drawing(chance)
        schema = {**drawing._object(3), "definitions": drawing.definitions}
        found = columns_of(schema)
        if found is None:
            refused += 1
            continue
        checked = jsonschema.Draft7Validator(schema)
        documents = [drawing.value(schema, 0) for _ in range(DOCUMENTS)]
        documents = [one for one in documents if isinstance(one, dict) and checked.is_valid(one)]
        for document, row in zip(documents, read(schema, found, documents), strict=True):
            if isinstance(row, str):
                # whole numbers that do not fit, members that differ in case
                assert any(words in row for words in FINE), (schema, document, row)
            else:
                assert repr(row) == repr(expected(schema, document, drawing.definitions)), (schema, document)
                exact += 1
    assert exact > 400 * TIMES
    assert refused > 20 * TIMES


FINE = ("out of range", "not a whole number", "only in case", "twice")


def columns_of(schema: Schema) -> Any:
    """The columns of a topic of such documents; None if they are refused."""
    try:
        reader = JsonSchema(json.dumps(schema), {})
        asked = Asked("topic 't'", "t", "t", (), None, {}, "upstream.value")
        return json_rows._found(asked, [Seen("schema id 1", reader.schema, True)]).columns
    except (Unsupported, BackfillError):
        return None


class Groups:
    def __init__(self, schema: Schema) -> None:
        self._reader = JsonSchema(json.dumps(schema), {})

    def groups(self, records: Any) -> Any:
        return [Described(list(range(len(records))), list(records), self._reader, "schema id 1")], {}


def read(schema: Schema, columns: Any, documents: list[Any]) -> list[Any]:
    """A row of each, or why it cannot be read."""
    if not documents:
        return []
    decode = json_rows.JsonRows(json_rows.schema_text(columns), documents=Groups(schema), closed=True)
    found = decode([json.dumps(one).encode() for one in documents])
    errors = found.error.to_pylist() if found.error is not None else [None] * len(documents)
    rows = zip(*(column.to_pylist() for column in found.columns.values()), strict=True)
    return [error or dict(zip(found.columns, row, strict=True)) for error, row in zip(errors, rows, strict=True)]


def expected(told: Schema, value: Any, definitions: Mapping[str, Schema]) -> Any:
    """A value as its column has it: members that it does not have are NULL."""
    if value is None:
        return None
    if "$ref" in told:
        return expected(definitions[told["$ref"].rpartition("/")[2]], value, definitions)
    for part in ("oneOf", "anyOf", "allOf"):
        if part in told and "type" not in told:
            (one,) = [one for one in told[part] if one != {"type": "null"}]
            return expected(one, value, definitions)
    kinds = told["type"] if isinstance(told["type"], list) else [told["type"]]
    (kind,) = [one for one in kinds if one != "null"]
    if kind == "array":
        return [expected(told["items"], one, definitions) for one in value]
    if kind == "object" and "properties" in told:
        return {name: expected(one, value.get(name), definitions) for name, one in told["properties"].items()}
    if kind == "object":
        return [(name, expected(told["additionalProperties"], one, definitions)) for name, one in value.items()]
    return {"number": float, "integer": int}.get(kind, lambda one: one)(value)


def test_what_each_type_becomes_is_in_the_docs() -> None:
    typed.checked("json-schema", json_schema_types.table())


def test_a_number_has_all_its_digits_in_a_column_that_is_declared_a_decimal() -> None:
    chance = random.Random(SEED)
    schema = {"type": "object", "properties": {"n": {"type": "number"}, "i": {"type": "integer"}}}
    columns = of_ddl("n DECIMAL(38,10), i DECIMAL(38,0)")
    numbers = [Decimal(chance.randrange(10**n)).scaleb(-chance.randrange(11)) for n in range(1, 28) for _ in "ab"]
    texts = [f'{{"n":{n:f},"i":{int(n.scaleb(10))}}}' for n in numbers]
    group = Described(
        list(range(len(texts))), [one.encode() for one in texts], JsonSchema(json.dumps(schema), {}), "x"
    )
    fields = {one["field"]: one for one in group.schema["fields"]}
    told = resolved.with_told(columns, fields)
    by = resolved.by_schema(told, group.schema, "x", (), False)
    wanted = by.wanted(False)
    assert wanted is not None
    raw, kept = group.read(wanted)
    assert len(kept) == len(texts)
    assert by.column("n", raw, len(kept))[0].to_pylist() == numbers
    assert by.column("i", raw, len(kept))[0].to_pylist() == [int(n.scaleb(10)) for n in numbers]
    for n, text in zip(numbers, texts, strict=True):
        assert Decimal(by.value("n", parsed(text)["n"])).scaleb(-10) == n
