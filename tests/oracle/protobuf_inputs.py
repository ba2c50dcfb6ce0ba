"""Protobuf schemas for Google's library, and their messages, by a writer that also errs."""

import random
import struct
from base64 import b64encode
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.type import date_pb2, timeofday_pb2

F = descriptor_pb2.FieldDescriptorProto
NAMES = {number: name[5:].lower() for name, number in F.Type.items() if name != "TYPE_GROUP"}
SCALARS = [kind for kind, name in NAMES.items() if name not in ("message", "enum")]
VARINTS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "enum")
KNOWN = [
    *(f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "Struct", "Value", "ListValue")),
    *(f"google.protobuf.{name}Value" for name in ("Int64", "UInt64", "String", "Bytes", "Bool", "Float")),
    "google.type.Date",
    "google.type.TimeOfDay",
]
FILES = [
    module.DESCRIPTOR
    for module in (timestamp_pb2, duration_pb2, struct_pb2, wrappers_pb2, date_pb2, timeofday_pb2)
]
WORDS = ["", "a", "zwölf", "🦆", "x" * 200, "a b\n", "\0"]
NUMBERS = [0, 1, 2, 127, 128, 300, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]


def file(rng: random.Random, number: int) -> descriptor_pb2.FileDescriptorProto:
    """A schema: the message `pN.M0` has fields of the others, and a few messages contain themselves."""
    syntax = rng.choice(["proto2", "proto3"])
    package = f"p{number}.q"
    made = descriptor_pb2.FileDescriptorProto(name=f"{number}.proto", package=package, syntax=syntax)
    made.dependency.extend(one.name for one in FILES)
    enum = made.enum_type.add(name="E")
    for i, value in enumerate([0, 1, 5, -1, 1000]):
        enum.value.add(name=f"E{i}", number=value)
    count = rng.randint(1, 3)
    for i in range(count):
        message = made.message_type.add(name=f"M{i}")
        inner = message.nested_type.add(name="In")
        inner.field.add(name="x", number=1, type=F.TYPE_SINT64, label=F.LABEL_OPTIONAL)
        oneofs: list[str] = []
        for n in rng.sample([*range(1, 14), 15, 16, 17, 2047, 2048, 536870911], rng.randint(0, 9)):
            _field(rng, made, message, n, [f"M{j}" for j in range(i, count)] + [f"M{i}.In"], oneofs)
        _declare_oneofs(message, oneofs)
    return made


def _field(
    rng: random.Random,
    made: descriptor_pb2.FileDescriptorProto,
    message: descriptor_pb2.DescriptorProto,
    number: int,
    messages: list[str],
    oneofs: list[str],
) -> None:
    field = message.field.add(name=f"f_{number}", number=number, label=F.LABEL_OPTIONAL)
    shape = rng.choice(["one", "one", "one", "many", "map", "oneof", "optional", "required"])
    if shape == "map":
        entry = message.nested_type.add(name=f"F{number}Entry")
        entry.options.map_entry = True
        key = rng.choice([kind for kind in SCALARS if NAMES[kind] not in ("float", "double", "bytes")])
        entry.field.add(name="key", number=1, type=key, label=F.LABEL_OPTIONAL)
        _type(rng, entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL), made.package, messages)
        field.label, field.type = F.LABEL_REPEATED, F.TYPE_MESSAGE
        field.type_name = f".{made.package}.{message.name}.{entry.name}"
        return
    _type(rng, field, made.package, messages)
    if shape == "many":
        field.label = F.LABEL_REPEATED
        if NAMES[field.type] not in ("string", "bytes", "message"):
            field.options.packed = rng.random() < 0.5
    elif shape == "oneof":
        name = rng.choice(["o", "p"])
        if name not in oneofs:
            oneofs.append(name)
        field.oneof_index = oneofs.index(name)
    elif made.syntax == "proto2" and shape == "required":
        field.label = F.LABEL_REQUIRED
    elif made.syntax == "proto3" and shape == "optional" and NAMES[field.type] != "message":
        field.proto3_optional = True


def _type(rng: random.Random, field: F, package: str, messages: list[str]) -> None:
    field.type = rng.choice([*SCALARS, F.TYPE_ENUM, F.TYPE_MESSAGE, F.TYPE_MESSAGE, F.TYPE_MESSAGE])
    if field.type == F.TYPE_ENUM:
        field.type_name = f".{package}.E"
    elif field.type == F.TYPE_MESSAGE:
        field.type_name = "." + (rng.choice(KNOWN) if rng.random() < 0.6 else f"{package}.{rng.choice(messages)}")


def _declare_oneofs(message: descriptor_pb2.DescriptorProto, oneofs: list[str]) -> None:
    for name in oneofs:
        message.oneof_decl.add(name=name)
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def classes(made: descriptor_pb2.FileDescriptorProto) -> Any:
    """The library's class of `M0`."""
    pool = descriptor_pool.DescriptorPool()
    for one in FILES:
        pool.AddSerializedFile(one.serialized_pb)
    pool.AddSerializedFile(made.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{made.package}.M0"))


def base64(made: descriptor_pb2.FileDescriptorProto) -> str:
    return b64encode(made.SerializeToString()).decode()


def text(made: descriptor_pb2.FileDescriptorProto) -> str:
    """The schema as text, with what a parser has to pass over."""
    lines = [f'syntax = "{made.syntax}"; // {{ "', f"package {made.package};", 'option java_package = "a.\\"b";']
    lines += [f'import "{name}";' for name in made.dependency]
    for enum in made.enum_type:
        values = [f"{v.name} = {v.number} [deprecated = true];" for v in enum.value]
        lines += [f"enum {enum.name} {{ reserved 7 to 9; ", *values, "}"]
    for message in made.message_type:
        lines += _message(made, message)
    return "\n".join(lines)


def _message(made: descriptor_pb2.FileDescriptorProto, message: descriptor_pb2.DescriptorProto) -> list[str]:
    lines = [f"message {message.name} {{ /* ; }} */ reserved 100, 200 to max; option deprecated = false;"]
    for nested in message.nested_type:
        if not nested.options.map_entry:
            lines += _message(made, nested)
    entries = {f".{made.package}.{message.name}.{one.name}": one for one in message.nested_type}
    members: dict[int | None, list[F]] = {}
    for field in message.field:
        is_member = field.HasField("oneof_index") and not field.proto3_optional
        members.setdefault(field.oneof_index if is_member else None, []).append(field)
    lines += [_line(made, field, entries, False) for field in members.pop(None, [])]
    for index, fields in members.items():
        inside = [_line(made, field, entries, True) for field in fields]
        lines += [f"oneof {message.oneof_decl[index].name} {{", *inside, "}"]
    return [*lines, "}"]


def _line(made: Any, field: F, entries: dict[str, Any], in_oneof: bool) -> str:
    entry = entries.get(field.type_name)
    packed = f" [packed = {str(field.options.packed).lower()}]" if field.options.HasField("packed") else ""
    if entry is not None and entry.options.map_entry:
        of = (_type_name(made, one) for one in entry.field)
        return f"map<{', '.join(of)}> {field.name} = {field.number};"
    label = {F.LABEL_REPEATED: "repeated ", F.LABEL_REQUIRED: "required "}.get(field.label, "")
    if not label and not in_oneof and (made.syntax == "proto2" or field.proto3_optional):
        label = "optional "
    return f"{label}{_type_name(made, field)} {field.name} = {hex(field.number)}{packed};"


def _type_name(made: Any, field: F) -> str:
    """A full name, or one from the package on."""
    return field.type_name.removeprefix(f".{made.package}.") if field.type_name else NAMES[field.type]


# messages


def varint(value: int, more: int = 0) -> bytes:
    """more: bytes that the number does not need."""
    value &= 2**64 - 1
    found = []
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    if more:
        found[-1] |= 0x80
        found += [0x80] * (more - 1) + [0]
    return bytes(found)


def written(rng: random.Random, of: Descriptor, wild: bool, depth: int = 0) -> bytes:
    """A message of a type as bytes. wild: in any order, twice, of unknown fields and of wrong wire types, too."""
    fields = sorted(of.fields, key=lambda f: f.number)
    is_entry = of.GetOptions().map_entry
    those = [field for field in fields if rng.random() < (0.7 if wild or not is_entry else 1)]
    if wild:
        those += rng.choices(fields, k=rng.randint(0, 3)) if fields else []
        rng.shuffle(those)
    chosen: dict[str, FieldDescriptor] = {}
    parts = []
    for field in those:
        oneof = field.containing_oneof
        if not wild and oneof is not None and chosen.setdefault(oneof.name, field) is not field:
            continue
        if depth > 3 and field.message_type is not None:
            continue
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        times = rng.randint(0, 1 if is_map and not wild else 3) if field.is_repeated else 1
        packs = (
            field.is_repeated and NAMES[field.type] not in ("string", "bytes", "message") and rng.random() < 0.5
        )
        if packs:
            inner = b"".join(_value(rng, field, wild, depth)[1] for _ in range(times))
            parts.append(_tag(rng, field.number, 2, wild) + varint(len(inner)) + inner)
        else:
            for _ in range(times):
                kind, value = _value(rng, field, wild, depth)
                parts.append(_tag(rng, field.number, kind, wild) + value)
        if wild and rng.random() < 0.15:
            parts.append(_unknown(rng, rng.choice([field.number, 99, 1, 3000])))
    return b"".join(parts)


def _tag(rng: random.Random, number: int, kind: int, wild: bool) -> bytes:
    tag = varint(number << 3 | kind)
    return tag if not wild or rng.random() < 0.97 else varint(number << 3 | kind, rng.randint(1, 5))


def _value(rng: random.Random, field: FieldDescriptor, wild: bool, depth: int) -> tuple[int, bytes]:
    """(wire type, the value as it is written)."""
    name = NAMES[field.type]
    if name in VARINTS:
        value = rng.choice(NUMBERS) if wild and rng.random() < 0.5 else _sane(rng, name)
        return 0, varint(value, rng.randint(1, 4) if wild and rng.random() < 0.05 else 0)
    if name in ("fixed64", "sfixed64"):
        return 1, struct.pack("<Q", rng.choice(NUMBERS))
    if name in ("fixed32", "sfixed32"):
        return 5, struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF)
    if name in ("float", "double"):
        value_ = rng.choice([0.0, -0.0, 1.5, 0.1, 1e-40, 3e38, float("nan"), float("inf"), -1e10])
        return (5, struct.pack("<f", value_)) if name == "float" else (1, struct.pack("<d", value_))
    if name == "string":
        raw = b"\xff\xed\xa0\x80" if wild and rng.random() < 0.03 else rng.choice(WORDS).encode()
    elif name == "bytes":
        raw = rng.choice(WORDS).encode()
    else:
        raw = _message_bytes(rng, field, wild, depth)
    return 2, varint(len(raw), rng.randint(1, 5) if wild and rng.random() < 0.03 else 0) + raw


def _sane(rng: random.Random, name: str) -> int:
    if name == "enum":
        return rng.choice([0, 1, 5, -1, 1000])
    return rng.choice([0, 1]) if name == "bool" else rng.randint(0, 100) if rng.random() < 0.8 else -1


def _message_bytes(rng: random.Random, field: FieldDescriptor, wild: bool, depth: int) -> bytes:
    """Messages that mean something mostly have values that do."""
    name = field.message_type.full_name
    if rng.random() < (0.3 if wild else 0.0):
        return written(rng, field.message_type, True, depth + 1)
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        nanos = rng.choice([0, 1000, 999_999_000, 5]) if wild else 1000 * rng.randint(0, 999)
        return b"\x08" + varint(rng.choice([0, 1, 1_700_000_000])) + b"\x10" + varint(nanos)
    if name == "google.type.Date":
        return b"\x08" + varint(rng.randint(1, 9999)) + b"\x10" + varint(rng.randint(1, 12)) + b"\x18\x1c"
    if name == "google.type.TimeOfDay":
        return b"\x08" + varint(rng.randint(0, 23)) + b"\x10\x01\x20\x05"
    if name == "google.protobuf.Value":
        return rng.choice([b"\x08\x00", b"\x11" + struct.pack("<d", 2.5), b"\x1a\x01a", b"\x20\x01", b"\x2a\x00"])
    if name in ("google.protobuf.Struct", "google.protobuf.ListValue"):
        item = b"\x1a\x02hi" if name.endswith("ListValue") else b"\x0a\x01k\x12\x04\x1a\x02hi"
        return (b"\x0a" + varint(len(item)) + item) * rng.randint(0, 2)
    return written(rng, field.message_type, wild, depth + 1)


def _unknown(rng: random.Random, number: int) -> bytes:
    kind = rng.choice([0, 1, 2, 3, 5, 0, 1, 2, 5, 4, 6, 7])
    tag = varint(number << 3 | kind)
    match kind:
        case 0:
            return tag + varint(rng.choice(NUMBERS))
        case 1 | 5:
            return tag + bytes(8 if kind == 1 else 4)
        case 2:
            return tag + rng.choice([b"\0", b"\x02ab", b"\x03abc", varint(2**31), varint(2**35)])
        case 3:
            inner = _unknown(rng, rng.choice([1, 2, 50])) if rng.random() < 0.5 else b""
            return tag + inner + varint((number if rng.random() < 0.9 else 5) << 3 | 4)
    return tag


def broken(rng: random.Random, raw: bytes) -> bytes:
    """A message that something happened to."""
    match rng.randint(0, 3):
        case 0:
            return raw[: rng.randint(0, len(raw))]
        case 1 if raw:
            at = rng.randrange(len(raw))
            return raw[:at] + bytes([raw[at] ^ 1 << rng.randint(0, 7)]) + raw[at + 1 :]
        case 2:
            at = rng.randint(0, len(raw))
            return raw[:at] + rng.choice([b"\0", b"\xff" * 11, b"\x80" * 9 + b"\x7f", b"\x02\x01"]) + raw[at:]
    return raw + raw
