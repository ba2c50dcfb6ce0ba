"""Kafka records that hardly anybody draws by chance, and the columns that Arrow's parser can read."""

RECORDS = 1000
"""The columns of simple types."""

HOSTILE = (
    b"", b" ", b"null", b"5", b'"x"', b"[]", b"{}", b"{} {}", b'{"s": "x"}{"s": "y"}', b'{"s": "x"}\n{"s": "y"}',
    b'{"s": "x"},', b'{"s": "x"', b'{"s": "x"}x', b'\xef\xbb\xbf{"s": "x"}', b'{"s": "\xff"}',
    b'{"s": "\xed\xa0\x80"}',
    b'{"s": "\\ud800"}', b'{"s": "\\udc00\\ud800"}', b'{"s": "\\ud83d\\ude00"}', b'{"\\ud800": 1}',
    b'{"s": "\\u0000"}',
    b'{"s": "a\x00b"}', b'{"s": "a\nb"}', b'{"s": "a\rb"}', b'{"s": "a\tb"}', b'\x00{"s": "x"}', b'{"s": "x"}\x00',
    b'{"i": NaN}', b'{"f": NaN}', b'{"f": Infinity}', b'{"f": -Infinity}', b'{"f": .5}', b'{"f": 5.}',
    b'{"f": +5}',
    b'{"i": 01}', b'{"i": 0x1}', b"{'s': 'x'}", b'{s: "x"}', b'{"s": "x",}', b'{"s": "x" /* y */}',
    b'// {\n{"s": "x"}',
    b'{"i": 1, "i": 2}', b'{"s": "x", "s": null}', b'{"i": 1, "i": "x"}', b'{"I": 1}', b'{"i ": 1}',
    b'{"unknown": [{}]}',
    b'\r\n{"s": "x"}\r\n', b'{"s":\r"x"}', b"\x00\x00\x00\x00\x01{}", b'{"s": "x"} null', b'{"s": "x"}null',
    b'{"i": 1}{"i": 2}{"i": 3}', b'{"l": 1.0}', b'{"l": 1e18}', b'{"l": 9223372036854775807.0}', b'{"o": 1}',
    b'{"o": "true"}',
    b'{"a": [[1]]}', b'{"t": {"n": 1, "n": 2}}', b'{"m": {"k": 1, "k": 2}}', b'{"x": "AA"}', b'{"x": "AA=="}',
    b'{"x": "A A="}',
    b'{"x": "_-8="}', b'{"x": "AB=="}', b'{"x": 5}', b'{"at": ""}', b'{"day": ""}', b'{"d": ""}', b'{"i": ""}',
    b'{"s": ""}',
    b'{"t": null}', b'{"t": {}}', b'{"a": [null]}', b'{"m": {"k": null}}', b'{"m": {"": 1}}', b'{"at": "epoch"}',
    b'{"at": "now"}', b'{"day": "today"}', b'{"f": "nan"}', b'{"f": "inf"}', b'{"f": "1.5"}', b'{"f": "1d"}',
    b'{"g": "INF"}',
)  # fmt: skip
"""What hardly anybody draws by chance."""

TOLERATED = {b"{'s': 'x'}": {"s": ("text", "x")}, b'{"s": "a\tb"}': {"s": ("text", "a\tb")}}
"""What is no JSON, and may be taken for what it is meant to be."""
