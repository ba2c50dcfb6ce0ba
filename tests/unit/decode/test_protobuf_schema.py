"""Schemas of Protobuf: what a text or a descriptor defines, what its types become, and what is refused by name."""

import importlib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.type import date_pb2

from backfill_cli.decode.connect import encoding, own_type
from backfill_cli.decode.encodings import Encoding
from backfill_cli.decode.protobuf import wire
from backfill_cli.decode.protobuf.connect import connect
from backfill_cli.decode.protobuf.known import known
from backfill_cli.decode.protobuf.one import token
from backfill_cli.decode.protobuf.schema import types_of
from backfill_cli.decode.protobuf.types import Types, linked
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.schema import shown

GOOGLE = Path(date_pb2.__file__).parent.parent
FILES = sorted(str(path.relative_to(GOOGLE.parent)) for path in GOOGLE.rglob("*.proto"))


def shape(types: Types, package: str) -> Any:
    def own(name: str) -> bool:
        return name.startswith(f"{package}.")

    messages = {name: (one.by_number, one.is_entry) for name, one in types.messages.items() if own(name)}
    return messages, {name: one for name, one in types.enums.items() if own(name)}


def descriptor(path: str) -> Any:
    return importlib.import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR


def encoded(file: Any) -> str:
    return b64encode(file.serialized_pb).decode()


def with_imports(file: Any) -> dict[str, str]:
    """By path, the descriptors of all that a file imports."""
    found: dict[str, str] = {}
    for one in file.dependencies:
        found |= {one.name: encoded(one), **with_imports(one)}
    return found


@pytest.mark.parametrize("path", FILES)
def test_googles_own_files_are_read_as_its_compiler_reads_them(path: str) -> None:
    file = descriptor(path)
    references = with_imports(file)
    package = file.package
    text = (GOOGLE.parent / path).read_text("utf-8")
    assert shape(types_of(text, references), package) == shape(types_of(encoded(file), references), package)


@pytest.mark.parametrize("path", [path for path in known() if path.startswith("google/")])
def test_files_that_need_no_reference_are_googles(path: str) -> None:
    file = descriptor(path)
    ours = linked(known()[path], known())
    assert shape(ours, file.package) == shape(types_of(encoded(file), with_imports(file)), file.package)


def types(body: str, syntax: str = "proto3", **references: str) -> Types:
    return types_of(f'syntax = "{syntax}"; package a; {body}', references)


def columns(of: Types, name: str) -> dict[str, str]:
    """The Spark type of each field, or why it has none."""
    found = {}
    for told in connect(of, name)["fields"]:
        try:
            found[told["field"]] = shown(own_type(told)[0])
        except Unsupported as exc:
            found[told["field"]] = str(exc)
    return found


def test_each_type_has_a_column_that_holds_all_its_values() -> None:
    made = types("""
        import "google/protobuf/any.proto"; import "google/protobuf/duration.proto";
        import "google/protobuf/empty.proto"; import "google/protobuf/struct.proto";
        import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
        import "google/type/date.proto"; import "google/type/timeofday.proto";
        import "confluent/type/decimal.proto";
        enum Color { RED = 0; }
        message Part { int32 x = 1; string y = 2; }
        message Tree { Tree left = 1; int32 v = 2; }
        message Row {
          int32 a = 1; sint32 b = 2; sfixed32 c = 3; uint32 d = 4; fixed32 e = 5; int64 f = 6; sint64 g = 7;
          sfixed64 h = 8; uint64 i = 9; fixed64 j = 10; float k = 11; double l = 12; bool m = 13; string n = 14;
          bytes o = 15; Color p = 16; Part q = 17; repeated int32 r = 18; repeated Part s = 19;
          map<int32, Part> t = 20; google.protobuf.Timestamp u = 21; google.protobuf.Duration v = 22;
          google.protobuf.UInt64Value w = 23; google.type.Date x = 24; google.type.TimeOfDay y = 25;
          google.protobuf.Struct z = 26; google.protobuf.Any any = 27; google.protobuf.Empty empty = 28;
          confluent.type.Decimal free = 29;
          confluent.type.Decimal price = 30 [(confluent.field_meta) = {
            params: [ { key: "precision", value: "12" }, { key: "scale", value: "2" } ]
          }];
          int32 tiny = 31 [(confluent.field_meta).params = { key: "connect.type", value: "int8" }];
          Tree tree = 32; Row row = 33;
        }""")
    part = "struct<x:int,y:string>"
    assert columns(made, "a.Row") == {
        **dict.fromkeys("abc", "int"),
        **dict.fromkeys("defgh", "bigint"),
        **dict.fromkeys("ij", "decimal(20,0)"),
        **dict.fromkeys("npz", "string"),
        **dict.fromkeys("vy", "bigint"),
        "k": "float",
        "l": "double",
        "m": "boolean",
        "o": "binary",
        "q": part,
        "r": "array<int>",
        "s": f"array<{part}>",
        "t": f"map<string,{part}>",
        "u": "timestamp",
        "w": "decimal(20,0)",
        "x": "date",
        "any": "struct<type_url:string,value:binary>",
        "empty": "google.protobuf.Empty has no fields",
        "free": "a decimal without a scale has no exact type",
        "price": "decimal(12,2)",
        "tiny": "tinyint",
        "tree": "a.Tree contains itself: no column has such a type",
        "row": "a.Row contains itself: no column has such a type",
    }


def test_unsigned_numbers_of_64_bits_fit_a_bigint_that_is_declared() -> None:
    told = connect(types("message R { uint64 a = 1; }"), "a.R")["fields"][0]
    assert encoding(told, "long") == encoding(told, "decimal(38,0)") == Encoding("text")
    with pytest.raises(Unsupported):
        encoding(told, "integer")


def test_presence_is_what_the_syntax_says() -> None:
    body = "message R { %s int32 a = 1; repeated int32 r = 2; R m = 3; oneof o { int32 x = 4; } }"
    assert token(b"", types(body % ""), "a.R") == {"a": "0", "r": [], "m": None, "x": None}
    assert token(b"", types(body % "optional"), "a.R") == {"a": None, "r": [], "m": None, "x": None}
    assert token(b"", types(body % "optional", "proto2"), "a.R")["a"] is None


def test_a_name_is_looked_for_from_the_innermost_message_outwards() -> None:
    made = types_of(
        'syntax = "proto3"; package a.b; import "other";'
        "message M { M inner = 1; b.N far = 2; .a.b.M outer = 3; a.N near = 4; message M { int32 x = 1; } }",
        {
            "other": 'syntax = "proto3"; package a; message N { int32 y = 1; } import public "more";',
            "more": 'syntax = "proto3"; package a.b; message N { int32 z = 1; }',
        },
    )
    kinds = {one.name: one.type for one in made.messages["a.b.M"].fields}
    assert kinds == {"inner": "a.b.M.M", "far": "a.b.N", "outer": "a.b.M", "near": "a.N"}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('edition = "2023"; message M {}', "edition 2023 is not supported: only proto2 and proto3 are"),
        ('syntax = "proto4";', "the syntax 'proto4' is not known"),
        ("message M { Other o = 1; }", "the type 'Other' of the field 'o' is not defined"),
        (
            'import "x/other.proto"; message M { optional Other o = 1; }',
            "the type 'Other' of the field 'o' is not defined, "
            "and the file 'x/other.proto' that it imports is not known",
        ),
        ("message M {\n int32 = 1; }", "line 2: a name instead of '='"),
        ("message M { int32 a = 1", "line 1: ';' instead of the end"),
        ("message M { int32 a = x; }", "line 1: a number instead of 'x'"),
        ("\n\n§", "line 3: '§' is not known"),
        ("AAAA", f"neither the text of a .proto file nor a descriptor: {wire.TAG}"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_by_name(schema: str, why: str) -> None:
    with pytest.raises(Unsupported) as found:
        types_of(schema, {})
    assert str(found.value) == why


def test_an_import_that_nothing_needs_may_be_missing() -> None:
    assert "M" in types_of('syntax = "proto3"; import "validate/validate.proto"; message M {}', {}).messages


def test_a_descriptor_of_an_edition_is_refused() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="x", syntax="editions", edition="EDITION_2023")
    with pytest.raises(Unsupported, match="'editions' is not supported"):
        types_of(b64encode(file.SerializeToString()).decode(), {})


def test_a_group_is_refused_where_it_is_asked_for_and_passed_over_where_it_is_not() -> None:
    made = types("message R { optional group Item = 1 { optional int32 a = 2; } optional int32 b = 3; }", "proto2")
    assert columns(made, "a.R") == {"item": "groups of proto2 are not supported", "b": "int"}
    assert token(b"\x0b\x10\x01\x0c\x18\x05", made, "a.R") == {"b": "5"}
    assert made.indexed([0, 0]) == "a.R.Item"


def test_message_indexes_name_a_message() -> None:
    made = types("message A {} message B { message C {} message D { message E {} } }")
    assert [made.indexed(at) for at in ([0], [1], [1, 0], [1, 1, 0])] == ["a.A", "a.B", "a.B.C", "a.B.D.E"]
    for at in ([2], [0, 0], [-1], []):
        with pytest.raises(Unsupported, match="no message with the indexes"):
            made.indexed(at)


def test_message_indexes_that_clients_count_in_two_ways_are_refused() -> None:
    made = types("message A { map<string, int32> m = 1; message B {} message C {} map<string, int32> n = 2; }")
    assert made.indexed([0, 2]) == "a.A.C"
    with pytest.raises(Unsupported, match=r"a\.A\.B or a.A.C, by how their writer counts"):
        made.indexed([0, 1])


def test_numbers_that_an_enum_does_not_have_are_texts_of_digits_or_refused_where_the_enum_is_closed() -> None:
    body = "enum E { Z = 0; ONE = 1; UNO = 1; } message R { %s E e = 1; }"
    assert token(b"\x08\x07", types(body % ""), "a.R") == {"e": "7"}
    assert token(b"\x08\x01", types("option x = {allow_alias: true};" + body % ""), "a.R") == {"e": "ONE"}
    with pytest.raises(Exception, match=r"the field 'e' is 7, which a\.E does not have"):
        token(b"\x08\x07", types(body % "optional", "proto2"), "a.R")
