"""Spark's names for the top of a module that commands import before they run Spark, or without: they load nothing.

The types are for annotations; the functions are loaded by the first call. A module that nothing imports before
Spark runs can import pyspark itself.
"""

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

Session = Callable[[], SparkSession]
"""What opens the session by its first call: for whoever may not need one."""

__all__ = ["Column", "DataFrame", "F", "Session", "SparkSession"]
