"""The text of an array, as array_out writes it: `{1,NULL,"a b","say \\"it\\""}`."""

import re


class NotOneDimensional(ValueError):
    """An array with several dimensions, or whose first index is not 1: no list is equal to it."""


def elements(text: str, delimiter: str = ",") -> list[str | None]:
    """The text of each element. Raises NotOneDimensional."""
    if text[0] != "{":
        raise NotOneDimensional(text)  # "[2:3]={…}"
    inner = text[1:-1]
    if inner[:1] == "{":
        raise NotOneDimensional(text)
    if '"' in inner:
        return _quoted(inner, delimiter)
    if not inner:
        return []
    items: list[str | None] = [*inner.split(delimiter)]
    return [None if item == "NULL" else item for item in items] if "NULL" in inner else items


_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _quoted(inner: str, delimiter: str) -> list[str | None]:
    found: list[str | None] = []
    for item in re.finditer(rf'"((?:[^"\\]|\\.)*)"|[^{re.escape(delimiter)}"]+', inner, re.DOTALL):
        if item[1] is not None:
            found.append(_ESCAPED.sub(r"\1", item[1]))
        else:
            found.append(None if item[0] == "NULL" else item[0])
    return found
