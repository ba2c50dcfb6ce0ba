"""Names and values from outside, made safe to show: the only place where this happens.

What is drawn with Rich is drawn as `Text`, never as markup, so brackets in names need no escape.
"""

import unicodedata

# Cc: ESC and the like move the cursor. Cf: right-to-left marks change what is read. Cs: has no UTF-8.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def shown(value: object) -> str:
    """One line of text without control characters, so that a terminal takes nothing in it for a command."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(char for char in text.replace("\n", " ") if unicodedata.category(char) not in _UNSHOWN)


def shown_lines(value: object) -> str:
    """As `shown`, line by line."""
    return "\n".join(map(shown, str(value).split("\n")))
