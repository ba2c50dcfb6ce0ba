"""Spark's names for the top of a module that commands import before they run Spark, or without: they load nothing.

The types are for annotations; the functions are loaded by the first call. A module that nothing imports before
Spark runs can import pyspark itself.
"""

import importlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F
else:
    Column = DataFrame = SparkSession = Any

    class _Functions:
        def __getattr__(self, name: str) -> Any:
            from pyspark.sql import functions

            return getattr(functions, name)

    F = _Functions()

_LOADING = threading.Lock()


def load() -> None:
    """pyspark is loaded. Its modules import each other: a thread that begins elsewhere meanwhile sees halves.

    Called first by whoever may load it beside another thread.
    """
    with _LOADING:
        importlib.import_module("pyspark.sql.pandas.types")


Session = Callable[[], SparkSession]
"""What opens the session by its first call: for whoever may not need one."""

__all__ = ["Column", "DataFrame", "F", "Session", "SparkSession", "load"]
