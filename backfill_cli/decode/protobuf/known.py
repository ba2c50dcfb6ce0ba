"""The files that schemas import without a reference, as far as their types are needed here."""

from collections.abc import Mapping
from functools import cache

from backfill_cli.decode.protobuf import text
from backfill_cli.decode.protobuf.files import File

_GOOGLE = {
    "any": "message Any { string type_url = 1; bytes value = 2; }",
    "duration": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "empty": "message Empty {}",
    "field_mask": "message FieldMask { repeated string paths = 1; }",
    "struct": """
        message Struct { map<string, Value> fields = 1; }
        message Value {
          oneof kind {
            NullValue null_value = 1;
            double number_value = 2;
            string string_value = 3;
            bool bool_value = 4;
            Struct struct_value = 5;
            ListValue list_value = 6;
          }
        }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
    "timestamp": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "wrappers": """
        message DoubleValue { double value = 1; }
        message FloatValue { float value = 1; }
        message Int64Value { int64 value = 1; }
        message UInt64Value { uint64 value = 1; }
        message Int32Value { int32 value = 1; }
        message UInt32Value { uint32 value = 1; }
        message BoolValue { bool value = 1; }
        message StringValue { string value = 1; }
        message BytesValue { bytes value = 1; }""",
}
_TYPE = {
    "calendar_period": """
        enum CalendarPeriod {
          CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5; HALF = 6;
          YEAR = 7;
        }""",
    "color": """
        import "google/protobuf/wrappers.proto";
        message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }""",
    "date": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "datetime": """
        import "google/protobuf/duration.proto";
        message DateTime {
          int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6;
          int32 nanos = 7;
          oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }
        }
        message TimeZone { string id = 1; string version = 2; }""",
    "dayofweek": """
        enum DayOfWeek {
          DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5;
          SATURDAY = 6; SUNDAY = 7;
        }""",
    "expr": """
        message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }""",
    "fraction": "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "latlng": "message LatLng { double latitude = 1; double longitude = 2; }",
    "money": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "month": """
        enum Month {
          MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY = 7;
          AUGUST = 8; SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12;
        }""",
    "postal_address": """
        message PostalAddress {
          int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4;
          string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8;
          repeated string address_lines = 9; repeated string recipients = 10; string organization = 11;
        }""",
    "quaternion": "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "timeofday": "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}
_CONFLUENT = {
    "type/decimal": "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "types/decimal": 'import public "confluent/type/decimal.proto";',
    "type/variant": "message Variant { bytes metadata = 1; bytes value = 2; }",
}
_PACKAGES = {
    "google/protobuf": ("google.protobuf", _GOOGLE),
    "google/type": ("google.type", _TYPE),
    "confluent": ("confluent.type", _CONFLUENT),
}


@cache
def known() -> Mapping[str, File]:
    """The path of an import → its file."""
    return {
        f"{folder}/{name}.proto": text.parsed(f'syntax = "proto3"; package {package}; {defined}')
        for folder, (package, files) in _PACKAGES.items()
        for name, defined in files.items()
    }


DESCRIPTOR = """
    syntax = "proto2"; package google.protobuf;
    message FileDescriptorProto {
      optional string package = 2;
      repeated string dependency = 3;
      repeated int32 public_dependency = 10;
      repeated DescriptorProto message_type = 4;
      repeated EnumDescriptorProto enum_type = 5;
      optional string syntax = 12;
    }
    message DescriptorProto {
      optional string name = 1;
      repeated FieldDescriptorProto field = 2;
      repeated DescriptorProto nested_type = 3;
      repeated EnumDescriptorProto enum_type = 4;
      optional MessageOptions options = 7;
      repeated OneofDescriptorProto oneof_decl = 8;
      message ReservedRange { optional int32 start = 1; optional int32 end = 2; }
      repeated ReservedRange reserved_range = 9;
      repeated string reserved_name = 10;
    }
    message MessageOptions { optional bool map_entry = 7; }
    message OneofDescriptorProto { optional string name = 1; }
    message FieldDescriptorProto {
      enum Type {
        double = 1; float = 2; int64 = 3; uint64 = 4; int32 = 5; fixed64 = 6; fixed32 = 7; bool = 8; string = 9;
        group = 10; message = 11; bytes = 12; uint32 = 13; enum = 14; sfixed32 = 15; sfixed64 = 16; sint32 = 17;
        sint64 = 18;
      }
      enum Label { optional = 1; required = 2; repeated = 3; }
      optional string name = 1;
      optional int32 number = 3;
      optional Label label = 4;
      optional Type type = 5;
      optional string type_name = 6;
      optional FieldOptions options = 8;
      optional int32 oneof_index = 9;
      optional bool proto3_optional = 17;
    }
    message FieldOptions { optional Meta field_meta = 1088; }
    message Meta { map<string, string> params = 2; }
    message EnumDescriptorProto {
      optional string name = 1;
      repeated EnumValueDescriptorProto value = 2;
    }
    message EnumValueDescriptorProto { optional string name = 1; optional int32 number = 2; }
"""
"""What is read of a descriptor: google's descriptor.proto and Confluent's field_meta, enum values by our names."""
