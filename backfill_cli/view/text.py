"""Names and values from outside, made safe to show: the one place where it happens.

What is drawn with Rich is drawn as `Text`, never as markup, so brackets in names need no escape.
"""

import unicodedata

# Cc: ESC and its kin move the cursor. Cf: right-to-left marks change what is read. Cs: no UTF-8 for it.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def shown(value: object) -> str:
    """One line of text without control characters: what a terminal cannot take for a command."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(char for char in text.replace("\n", " ") if unicodedata.category(char) not in _UNSHOWN)


def shown_lines(value: object) -> str:
    """As `shown`, line by line."""
    return "\n".join(map(shown, str(value).split("\n")))
