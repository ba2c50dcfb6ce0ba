"""Expressions that are built once per Spark driver: they name columns, and no frame.

A call from Python into the JVM takes 0.3 ms, and the expressions of a table of eight columns take a thousand: more
than half of a small epoch's time (measured: 0.5 s of 0.9 s for a JSON file of two lines).
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

KEPT = 64
"""So many are kept per driver: several of each table."""


class _Client:
    """Stands for the driver where Spark Connect's client builds expressions, without one."""


_CLIENT = _Client()
_BUILT: "WeakKeyDictionary[object, OrderedDict[Hashable, Any]]" = WeakKeyDictionary()


def reused(key: Hashable, build: Callable[[], T]) -> T:
    """What `build` made for this key before, in the driver that is there now; else what it makes.

    key: all that the expressions depend on. build: called twice at worst, by two threads that ask at once.
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
