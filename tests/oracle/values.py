"""Texts that may be values: each type's extremes, one beyond, and what lies between."""

import datetime as dt

from hypothesis import strategies as st

TEXT_TYPES = {
    "flag": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INT",
    "i64": "BIGINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "dec": "DECIMAL(9,2)",
    "big": "DECIMAL(38,10)",
    "txt": "STRING",
    "day": "DATE",
    "at": "TIMESTAMP",
    "wall": "TIMESTAMP_NTZ",
}
"""Column → type, of a table that both text forms can fill."""

PLAIN = {
    "flag": "true",
    "i8": "-128",
    "i16": "32767",
    "i32": "-2147483648",
    "i64": "9223372036854775807",
    "f32": "0.1",
    "f64": "5e-324",
    "dec": "-9999999.99",
    "big": "9999999999999999999999999999.9999999999",
    "txt": "x",
    "day": "9999-12-31",
    "at": "2026-01-31T23:59:59.999999+05:45",
    "wall": "0001-01-01T00:00:00.000001",
}
"""Column → a value of it."""

Texts = st.SearchStrategy[str]


def whole(bits: int) -> Texts:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = st.sampled_from([str(n) for n in (low, low - 1, high, high + 1, 0, -1, 10 * high, 200)])
    return st.one_of(st.integers(low, high).map(str), st.integers(low, high).map(str), edges)


def floating() -> Texts:
    told = ["0.0", "-0.0", "1e308", "1e39", "-1e39", "1e400", "-1e400", "5e-324", "1e-46", "0.1", "16777217"]
    told += ["3.4028234663852886e38", "3.4028235677973366e38", "3.4028235677973365e38", "1.7976931348623159e308"]
    told += ["1.00000005960464477539062500001", "9007199254740993", "1E5", "1e-400", "123456789.123456789"]
    return st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.sampled_from(told)


def decimal(precision: int, scale: int) -> Texts:
    whole_digits = precision - scale
    fits = st.decimals(-(10**whole_digits) + 1, 10**whole_digits - 1, places=scale).map("{:f}".format)
    edge = "9" * whole_digits + "." + "9" * scale
    told = [edge, "-" + edge, "1" + "0" * whole_digits, "0." + "0" * scale + "1", "1.5", "0", "-0", "1" + edge]
    return st.one_of(fits, fits, st.sampled_from(told))


def text() -> Texts:
    odd = [
        "",
        " ",
        "null",
        "NULL",
        "\x00",
        "a\x00b",
        "\ufeff",
        "\u2028",
        "\u0085",
        "\\",
        "\\N",
        "#",
        "'",
        "😀",
        "é",
    ]
    odd += ["__backfill_empty__", "\x01", "\x1a", "\x7f", "\uffff", "1e400", "NaN", "x" * 5000]
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(odd)


def day() -> Texts:
    odd = ["0001-01-01", "9999-12-31", "1582-10-10", "1900-02-28", "2000-02-29", "1500-01-01"]
    beyond = [
        "10000-01-01",
        "0000-01-01",
        "-0001-01-01",
        "2026-02-30",
        "2026-13-01",
        "2026-1-1",
        "today",
        "20260101",
    ]
    return st.one_of(st.dates().map(dt.date.isoformat), st.sampled_from(odd), st.sampled_from(beyond))


def moment(zoned: bool) -> Texts:
    stamps = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
    zones = st.sampled_from(["Z", "+00:00", "+02:00", "-11:30", "+05:45", ""]) if zoned else st.just("")
    odd = [
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59.999999",
        "1582-10-10T00:00:00",
        "1890-01-01 00:00:00.123456",
    ]
    odd += ["2026-01-01T00:00:00.123456000", "2026-01-01"]
    beyond = ["2026-01-01T00:00:00.1234567", "2026-01-01T00:00:00.000000001", "10000-01-01T00:00:00"]
    beyond += ["2026-02-30T00:00:00", "2026-01-01T25:00:00", "2026-01-01T00:00:61", "now", "1700000000"]
    if not zoned:
        beyond.append("2026-01-01T00:00:00+02:00")
    good = st.builds(lambda stamp, zone: stamp.isoformat() + zone, stamps, zones)
    return st.one_of(good, good, st.sampled_from(odd), st.sampled_from(beyond))


def of(kind: str) -> Texts:
    """Texts for a column of this type, most of them values of it."""
    return {
        "BOOLEAN": st.sampled_from(["true", "false", "true", "false", "TRUE", "1", "0", "2", "maybe"]),
        "TINYINT": whole(8),
        "SMALLINT": whole(16),
        "INT": whole(32),
        "BIGINT": whole(64),
        "FLOAT": floating(),
        "DOUBLE": floating(),
        "DECIMAL(9,2)": decimal(9, 2),
        "DECIMAL(38,10)": decimal(38, 10),
        "STRING": text(),
        "DATE": day(),
        "TIMESTAMP": moment(True),
        "TIMESTAMP_NTZ": moment(False),
    }[kind]
