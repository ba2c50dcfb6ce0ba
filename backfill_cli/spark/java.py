"""Finds the Java that Spark will start, the way Spark finds it, and checks its version before anything starts."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backfill_cli.errors import UsageError

OLDEST = 17
INSTALL = "apt-get install openjdk-17-jre-headless (macOS: brew install openjdk@17), and let JAVA_HOME name it"
"""Only JAVA_HOME helps where it names another one, or where PATH has another one first."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime. major: 17, 21, …; described: version and vendor, the same for the same build."""

    path: Path
    major: int
    described: str


def find_java(env: Mapping[str, str]) -> Java:
    """The Java that Spark will use: JAVA_HOME's, or else the one on PATH.

    Raises UsageError if there is none, it does not run, or it is too old for Spark 4.
    """
    home = env.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java", path=env.get("PATH"))
    where = "in JAVA_HOME" if home else "on PATH"
    if found is None:
        raise UsageError(f"Spark needs Java {OLDEST} or newer, but there is no java {where}", INSTALL)
    path = Path(found)
    if not path.exists():
        raise UsageError(f"JAVA_HOME is {home}, which has no bin/java", INSTALL)
    described = _release(path.resolve()) or asked(path)
    version = re.search(r'version[^0-9"]*"([0-9]+)(?:\.([0-9]+))?', described, re.IGNORECASE)
    major = int(version[1]) if version else 0
    if version and major == 1 and version[2]:
        major = int(version[2])
    if major < OLDEST:
        said = f"is Java {major}" if major else "does not report its version"
        raise UsageError(f"Spark needs Java {OLDEST} or newer, but {path} {where} {said}", INSTALL)
    return Java(path, major, described)


def _release(java: Path) -> str:
    """Version and vendor from the runtime's `release` file, 100 ms quicker than starting it; empty without one."""
    try:
        lines = (java.parent.parent / "release").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    wanted = ("IMPLEMENTOR=", "JAVA_RUNTIME_VERSION=", "JAVA_VERSION=")
    return "\n".join(sorted(line for line in lines if line.startswith(wanted)))


def asked(java: Path) -> str:
    """What `java -version` prints. Raises UsageError if it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{java} does not run: {error}", INSTALL) from error
    said = f"{done.stdout}{done.stderr}".strip()
    if done.returncode != 0:
        last = said.splitlines()[-1:] or [f"its exit code is {done.returncode}"]
        raise UsageError(f"{java} does not run: {last[0]}", INSTALL)
    return said
