"""What this machine has: Java, Python, packages and the connectors' clients. Starts no JVM session."""

import operator
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata

from backfill_cli.config import JobConfig
from backfill_cli.errors import UsageError, shell
from backfill_cli.model.reports import Check, failed, ok, refused, warning
from backfill_cli.spark import class_data
from backfill_cli.spark.java import Java, asked, find_java
from backfill_cli.tried import TRIED

OURS = "backfill-cli"
SHOWN = ("pyspark", "pyarrow", "duckdb")
"""Of the packages that are always needed; the others are pure Python."""

NATIVE = {
    "pyarrow": "pyarrow",
    "duckdb": "duckdb",
    "confluent-kafka": "confluent_kafka",
    "psycopg": "psycopg",
    "adbc-driver-postgresql": "adbc_driver_postgresql",
    "grpcio": "grpc",
}
"""Packages with compiled parts, which can be installed but fail to load: package name -> module to load."""

_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)\)?(?:;.*extra == ['\"]([\w-]+)['\"])?")
_BOUND = re.compile(r"(>=|<=|==|!=|>|<)\s*([\w.]+)")
_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package, its accepted versions (`>=3.2,<4`), and the extra that needs it, empty for none."""

    name: str
    bounds: str
    extra: str


def checks(env: Mapping[str, str], needed: frozenset[str]) -> Iterator[Check]:
    """needed: the extras that the job to be checked requires."""
    java: Java | None = None
    try:
        java = find_java(env)
        asked(java.path)
        where = "JAVA_HOME" if env.get("JAVA_HOME") else "PATH"
        yield ok("java", f"Java {java.major}, {java.path}, from {where}")
    except UsageError as error:
        yield refused("java", error)
    yield _python()
    required = requirements()
    for one in required:
        if not one.extra and one.name in SHOWN:
            yield _package(one)
    for extra in sorted({one.extra for one in required if one.extra}):
        yield _extra(extra, [one for one in required if one.extra == extra], extra in needed)
    if java is not None and _version("pyspark") is not None:
        yield _class_archive(java)


def extras(config: JobConfig) -> frozenset[str]:
    """The extras that the job requires; one of our connectors has the same name as its extra."""
    told = config.tree["upstream"]
    sides = [told, *(side for side in told.values() if isinstance(side, dict)), config.tree["sink"]]
    kinds = {side["type"] for side in sides if isinstance(side.get("type"), str)}
    return frozenset(kinds | ({"connect"} if config.spark.remote else set()))


def requirements() -> list[Requirement]:
    """The requirements that our own package declares."""
    found = (_REQUIREMENT.match(line) for line in metadata.requires(OURS) or ())
    return [Requirement(one[1], one[2].strip(), one[3] or "") for one in found if one is not None]


def untried(extras: frozenset[str]) -> list[Check]:
    """A warning for each installed package, of those that a job with these extras uses, in an untried version."""
    used = (one for one in requirements() if not one.extra or one.extra in extras)
    return [found for one in used if (found := _untried(one)) is not None]


def _untried(one: Requirement) -> Check | None:
    """A warning if the package's version is outside those that this release was tested with."""
    version = _version(one.name)
    if version is None or one.name not in TRIED:
        return None
    lowest, newest = TRIED[one.name]
    tried = _tried(one.name)
    if fits(version, tried):
        return None
    said = f"{one.name} {version} was not tried with this release of backfill, which was tested with {lowest}"
    to = f" to {newest}" if lowest != newest else ""
    return warning(one.name, f"{said}{to}", shell(f"pip install '{one.name}{tried}'"))


def _tried(package: str) -> str:
    """The bounds within which this release was tested with the package."""
    lowest, newest = TRIED[package]
    return f">={lowest},<={newest}" if lowest != newest else f"=={newest}"


def fits(version: str, bounds: str) -> bool:
    """Whether a version is within bounds like `>=4.1.4,<4.2`."""
    return all(_COMPARE[how](_numbers(version), _numbers(bound)) for how, bound in _BOUND.findall(bounds))


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in re.findall(r"\d+", version)[:6]]
    return (*numbers, *([0] * (6 - len(numbers))))


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    bounds = metadata.metadata(OURS)["Requires-Python"]
    if not fits(version, bounds):
        return failed(
            "python", f"Python {version} at {sys.executable}; needed: {bounds}", "python3.12 -m venv .venv"
        )
    return ok("python", f"Python {version}, {sys.executable}, for driver and local workers")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _fault(one: Requirement) -> str | None:
    """What is wrong with a package, None if nothing. A package with compiled parts is loaded."""
    version = _version(one.name)
    if version is None:
        return f"{one.name} is not installed"
    if not fits(version, one.bounds):
        return f"{one.name} is {version}, but has to be {one.bounds}"
    if one.name in NATIVE:
        try:
            import_module(NATIVE[one.name])
        except ImportError as error:
            return f"{one.name} {version} does not load: {error}"
    return None


def _package(one: Requirement) -> Check:
    fault = _fault(one)
    if fault is not None:
        return failed(one.name, fault, shell(f"pip install '{one.name}{one.bounds}'"))
    return _untried(one) or ok(one.name, f"{_version(one.name)}")


def _extra(extra: str, parts: list[Requirement], needed: bool) -> Check:
    """A set of packages that some jobs need. An incomplete set fails only if the job to be checked needs it."""
    name, install = f"extra {extra}", shell(f"pip install '{OURS}[{extra}]'")
    faults = [fault for one in parts if (fault := _fault(one)) is not None]
    unsure = [found for one in parts if (found := _untried(one)) is not None]
    if not faults and unsure:
        pins = " ".join(f"'{one.name}{_tried(one.name)}'" for one in unsure)
        return warning(name, "; ".join(one.said for one in unsure), shell(f"pip install {pins}"))
    if not faults:
        return ok(name, ", ".join(f"{one.name} {_version(one.name)}" for one in parts))
    if needed:
        return failed(name, f"this job needs it: {'; '.join(faults)}", install)
    return ok(name, f"not installed ({'; '.join(faults)}); if a job needs it: {install}")


def _class_archive(java: Java) -> Check:
    """Whether Java can start from a class archive. Never fails: without one Java starts normally."""
    file = class_data.archive_file(java, {})
    if file is None:
        why = "turned off, no home folder to keep it in, or Spark uses your own classes"
        return ok("class archive", f"{why}: Java starts without one")
    if not file.exists():
        return ok("class archive", f"none yet for this Java and Spark; the first run creates one in {file.parent}")
    if not class_data.flags_to_use(file):
        return ok("class archive", f"this Java cannot create one ({file} is empty): it starts without")
    return ok("class archive", str(file))
