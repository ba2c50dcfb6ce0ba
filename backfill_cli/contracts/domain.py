"""What a sink cannot hold of a column's type: a source refuses such a value with the place of its record."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Domain:
    """Values of a type that the sink's own type for it lacks.

    system: as reasons name the sink. logical: the types of a column's metadata ({"uuid", "json"}) for which it has
    a type of its own, which takes no other text. nul: whether text has the character NUL. halves: whether JSON has
    half a surrogate, escaped. first, last: by Spark's type its first and last value, in days or microseconds since
    1970. endless: whether infinity and -infinity are values of these types. deep: whether what is in a struct, a
    map, or a list of these has these types, too; in a list of plain values it always has.
    """

    system: str = ""
    logical: frozenset[str] = frozenset()
    nul: bool = True
    halves: bool = True
    first: Mapping[str, int] = field(default_factory=dict, hash=False)
    last: Mapping[str, int] = field(default_factory=dict, hash=False)
    endless: bool = True
    deep: bool = False
