"""A Java that outlives the runners of a test: the next one finds it warm, for half of what a start costs.

Between two runners its Spark ends, as Java itself does with a runner that has one of its own. Java's own beginning
and end, and queries that it compiles and plans anew after each shuffle, are what the tests that do not ask for
this one see: `systems/test_commands.py`, clusters, `scripts/demo`, `scripts/test-integrations`.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from backfill_cli.lake.merge import INTERPRETED
from backfill_cli.spark import class_data, driver
from backfill_cli.spark.java import find_java
from backfill_cli.spark.session import LOG4J
from backfill_cli.spark.table_formats import EXCLUDES, FORMATS, JARS, PACKAGES, session_settings

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

SHIPPED = (JARS, "spark.submit.pyFiles")
"""Which jars Spark copies to its executors and to Python workers."""

LIMIT_S = 180.0
"""For what a runner that has ended was having Java do."""

Kind = tuple[str, tuple[tuple[str, str], ...]]
"""What a Java has from its start, beside the formats' jars: more jars, and the variables of the AWS SDK."""

_kept: "dict[Kind, JavaGateway]" = {}
"""One, and those that are lent."""
_shipped: dict[Kind, dict[str, str]] = {}
"""Of each: `SHIPPED` as it was at its start."""
_lent: set[Kind] = set()


@contextmanager
def kept_java(formats: Sequence[str] = (), jars: str = "") -> Iterator[Mapping[str, str]]:
    """What to add to the environment of one runner, until it has ended. Nothing while another one has the Java.

    formats: of lake tables, whose jars the runner's executors are given; the Java has those of all from its start.
    jars: what it has besides, as `spark.jars` has them.
    """
    kind = jars, tuple(sorted((name, told) for name, told in os.environ.items() if name.startswith("AWS_")))
    if kind in _lent:
        yield {}
        return
    for other in _kept.keys() - _lent - {kind}:
        _ended(_kept.pop(other))
    if kind not in _kept:
        _kept[kind] = _started(kind)
    java = _kept[kind]
    _shipping(java, _shipped[kind] if formats or jars else {})
    address = java.gateway_parameters
    _lent.add(kind)
    try:
        yield {"PYSPARK_GATEWAY_PORT": str(address.port), "PYSPARK_GATEWAY_SECRET": address.auth_token}
    finally:
        _emptied(java)
        _lent.remove(kind)


def archive_flags() -> list[str]:
    """Flags of Java with which Spark starts sooner, none before the class data archive is made."""
    return class_data.flags_to_use(class_data.archive_file(find_java(os.environ), {}))


def _started(kind: Kind) -> "JavaGateway":
    """Ends with this process. Interprets, and plans a query once: what runs in it sees some rows a query, and
    compiling takes longest."""
    jars, _ = kind
    flags = [f'"-Dlog4j2.configurationFile={LOG4J}"', *archive_flags()]
    quick = {**INTERPRETED, "spark.sql.adaptive.enabled": "false", "spark.driver.memory": "2g"}
    settings = {"spark.driver.extraJavaOptions": " ".join(flags), **quick}
    fetched = {
        name: value for name, value in session_settings([*FORMATS], {}).items() if name in (PACKAGES, EXCLUDES)
    }
    java = driver.start({**settings, **fetched, **({JARS: jars} if jars else {})})
    driver._started.remove(java)  # of the runners that it is lent to: its end is no failure of this process
    told = {name: java.jvm.java.lang.System.getProperty(name) for name in SHIPPED}
    _shipped[kind] = {name: value for name, value in told.items() if value is not None}
    return java


def _shipping(java: "JavaGateway", told: Mapping[str, str]) -> None:
    """The next Spark reads `SHIPPED` from here; one in this process has the jars without."""
    properties = java.jvm.java.lang.System
    for name in SHIPPED:
        properties.setProperty(name, told[name]) if name in told else properties.clearProperty(name)


def _ended(java: "JavaGateway") -> None:
    """Each takes half a gigabyte."""
    java.proc.stdin.close()
    java.proc.wait(60)


def _emptied(java: "JavaGateway") -> None:
    """No Spark is left in it, and nothing that Delta remembers of tables."""
    jvm: Any = java.jvm
    spark, deadline = _object(jvm.org.apache.spark, "SparkContext"), time.monotonic() + LIMIT_S
    # A runner that was killed leaves one; one that ended while Spark was starting leaves one later.
    while _is_called(jvm) or spark.getActive().isDefined():
        assert time.monotonic() < deadline, "a runner has ended, and Java still does what it asked for"
        if (left := spark.getActive()).isDefined():
            left.get().stop()
        else:
            time.sleep(0.02)
    delta = _object(jvm.org.apache.spark.sql.delta, "DeltaLog")
    if delta is not None:
        delta.clearCache()


def _is_called(jvm: Any) -> bool:
    """Whether a thread of Java, besides the one that answers this, does what a Python asked for."""
    from py4j.java_gateway import JavaObject

    stacks = jvm.java.lang.Thread.getAllStackTraces()
    values = JavaObject.__getattr__(stacks, "values")()  # of Java: Python's would ask for each
    told: str = jvm.java.util.Arrays.deepToString(values.toArray())
    return sum("py4j.commands." in stack for stack in told.split("], [")) > 1


def _object(package: Any, name: str) -> Any:
    """Scala's `object` of that name, None where its jar is not there."""
    found = getattr(package, f"{name}$")
    return getattr(found, "MODULE$") if type(found).__name__ == "JavaClass" else None
