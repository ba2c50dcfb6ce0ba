"""Expressions that are built once per Spark driver, which is possible as they name columns but no frame.

A call from Python into the JVM takes 0.3 ms, and the expressions of a table of eight columns need a thousand: more
than half of a small epoch's time (measured: 0.5 s of 0.9 s for a JSON file of two lines).
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

KEPT = 64
"""How many are kept per driver: several per table."""


class _Client:
    """Stands for the driver if Spark Connect's client builds expressions, which has none."""


_CLIENT = _Client()
_BUILT: "WeakKeyDictionary[object, OrderedDict[Hashable, Any]]" = WeakKeyDictionary()


def reused(key: Hashable, build: Callable[[], T]) -> T:
    """What `build` returned for this key earlier, with the current driver; otherwise what it returns now.

    key: everything that the expressions depend on. build: called twice at worst, by two threads at once.
    """
    from pyspark import SparkContext

    built = _BUILT.setdefault(SparkContext._active_spark_context or _CLIENT, OrderedDict())
    try:
        found: T = built[key]
        built.move_to_end(key)
    except KeyError:
        found = built[key] = build()
        if len(built) > KEPT:
            built.popitem(last=False)
    return found
