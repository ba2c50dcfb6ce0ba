"""What an error of Spark's says, without what Python and Java put around it."""

import re

CALLING = re.compile(r"^An error occurred while calling [\w.$:]+\s*:?\s*")
"""The first line of an error whose class PySpark does not know; `z:` stands before a static method."""
_CLASS = re.compile(r"^(?:[a-z_$][\w$]*\.)+[A-Z][\w$]*: (?=\S)")


def cause_in(said: str) -> str:
    """The first line of an error's own message: neither the call from Python, nor Java's class and frames."""
    lines = CALLING.sub("", said.strip()).splitlines()
    return _CLASS.sub("", next(filter(None, map(str.strip, lines)), ""))[:300]
