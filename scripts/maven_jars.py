"""Jars named by a pom: fetched once into the user's cache folder, by Maven as configured on this machine."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from filelock import FileLock

from backfill_cli.spark.class_data import cache_folder

_POMS = Path(__file__).with_name("kafka")


class NoJars(Exception):
    """Why the jars cannot be fetched; the text ends with what to do."""


def broker() -> Path:
    """The folder of a Kafka broker's jars (44 MB). Raises NoJars."""
    return fetched(_POMS / "broker.xml", "kafka")


def spark_source() -> Path:
    """The folder of the jars of Spark's own Kafka source and its dependencies. Raises NoJars."""
    return fetched(_POMS / "spark-source.xml", "spark-kafka")


def spark_avro() -> Path:
    """The folder of the jar of Spark's `from_avro` and of its files of Avro. Raises NoJars."""
    return fetched(_POMS / "spark-avro.xml", "spark-avro")


def registry() -> Path:
    """The folder of a schema registry, unpacked (150 MB). Raises NoJars."""
    return fetched(_POMS / "registry.xml", "registry")


def connect() -> Path:
    """The folder of Kafka Connect's jars (33 MB). Raises NoJars."""
    return fetched(_POMS / "connect.xml", "connect")


def plugins() -> tuple[Path, ...]:
    """The folders of Debezium's connectors and of Apicurio's converters (34 MB). Raises NoJars."""
    names = ("debezium", "debezium-mysql", "converters")
    return tuple(fetched(_POMS / f"{name}.xml", name) for name in names)


def fetched(pom: Path, name: str) -> Path:
    """The folder `name-version` of a pom's jars; the version is that of the first one. Raises NoJars."""
    version = ET.parse(pom).getroot().findtext(".//{*}dependency/{*}version")
    cache = cache_folder(os.environ)
    if cache is None:
        raise NoJars("there is no home folder to keep them in: set XDG_CACHE_HOME")
    folder = cache / f"{name}-{version}"
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as made:
                _fetch(pom, Path(made) / "jars")
                (Path(made) / "jars").rename(folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars(
            "mvn, which fetches the jars, was not found: apt-get install maven (macOS: brew install maven)"
        )
    print(f"fetching {pom.stem}'s jars with Maven, once", file=sys.stderr)
    sha256 = ET.parse(pom).getroot().findtext("{*}properties/{*}sha256")
    wanted = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(
        [maven, "-q", "-B", *(["--strict-checksums"] if sha256 is None else []), "-f", pom, *wanted],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[:5])
        raise NoJars(f"mvn could not fetch {pom.stem}'s jars: check Maven's settings and the network\n{said}")
    for archive in folder.glob("*.tar.gz"):
        if sha256 is not None and hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
            raise NoJars(f"{archive.name} is not the file whose SHA-256 {pom.name} has: check Maven's settings")
        shutil.unpack_archive(archive, folder, filter="data")
        archive.unlink()
