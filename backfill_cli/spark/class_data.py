"""The driver's class archive: the classes that Java would load and verify at each start, in a file that it maps.

Created in the background after the first run with a given Java, Spark and its jars, then used if it exists. About
160 MB in the user's cache folder. A missing, broken or foreign archive does no harm: Java starts without it.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from backfill_cli.spark.java import Java

SWITCH = "BACKFILL_CLASS_ARCHIVE"
"""If this is set to `off` no archive is used or created."""


def cache_folder(env: Mapping[str, str]) -> Path | None:
    """Our folder in the user's cache folder; it may not exist yet. None for a user without a home."""
    root = env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "backfill" if os.path.isabs(root) else None


def archive_file(java: Java, settings: Mapping[str, str]) -> Path | None:
    """Where the archive for this Java and Spark is, or would be. None if it could not be used or is switched off.

    An archive is only valid for the class path that it was made with, so not if the user's settings add to that.
    """
    own_classes = settings.get("spark.driver.extraClassPath") or os.environ.get("SPARK_DIST_CLASSPATH")
    folder = cache_folder(os.environ)
    if os.environ.get(SWITCH) == "off" or own_classes or folder is None:
        return None
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    jars, spark = Path(package.origin).parent / "jars", version("pyspark")
    key = hashlib.sha256(f"{java.described}\n{java.path.resolve()}\n{spark}\n{jars}".encode())
    for jar in sorted(os.scandir(jars), key=lambda entry: entry.name):
        status = jar.stat()
        key.update(f"\n{jar.name} {status.st_size} {status.st_mtime_ns}".encode())
    return folder / f"spark-{spark}-java-{java.major}-{key.hexdigest()[:16]}.jsa"


def flags_to_use(archive: Path | None) -> list[str]:
    """Java flags that map the archive; none if it does not exist, or is empty as it could not be created."""
    if archive is None or not archive.exists() or archive.stat().st_size == 0:
        return []
    return [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", "-Xlog:disable", "-Xlog:all=off"]


def make_in_background() -> None:
    """A background process creates the archive at the lowest priority, then ends. Never fails the caller."""
    try:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "backfill_cli.spark.class_data_maker"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=tempfile.gettempdir(),
        )
    except OSError:
        return
