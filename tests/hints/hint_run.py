"""A run of tests and the hints in it: what each process recorded, checked and counted once all tests are done.

The figures are those of the whole suite; the checks are of any run.
`python tests/hints/hint_run.py RECORD…` shortens the list by what a run has typed.
"""

import atexit
import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hint_checks import Parse
    from pyspark.sql import SparkSession

FILE = "BACKFILL_HINTS"
HERE = Path(__file__).parent
ANSWERS_FILE = ".answers"  # beside it: see `answers_run`
NOT_TYPED = HERE / "not_typed.txt"
"""Hints that no test types: the list may only become shorter."""
FROM_SPARK = "backfill_cli/spark/failures.py"
"""Where what failed in Spark becomes an error again."""

Place = tuple[str, int, int]


def begin() -> None:
    """Every process of this run appends to one file, named by the environment."""
    if not os.environ.get(FILE):
        handle, name = tempfile.mkstemp(prefix="backfill-hints-", suffix=".jsonl")
        os.close(handle)
        os.environ[FILE] = name
        for file in (name, name + ANSWERS_FILE):
            atexit.register(Path(file).unlink, missing_ok=True)
    Path(os.environ[FILE]).touch()


@dataclass(frozen=True)
class Record:
    """what: built, way on, shown, typed, or parsed (`wrong` says what Spark's parser found)."""

    what: str
    places: tuple[Place, ...]
    text: str
    test: str
    wrong: str = ""


def recorded() -> list[Record]:
    lines = Path(os.environ[FILE]).read_text("utf-8").splitlines()
    return [_record(json.loads(line)) for line in lines]


def _record(line: dict[str, Any]) -> Record:
    places = tuple((str(file), int(row), int(column)) for file, row, column in line.get("at", ()))
    return Record(line["what"], places, line["text"], line.get("test", ""), line.get("wrong", ""))


@dataclass
class Run:
    """shown, typed: names of sites, and values of hints. faults: of each text, in which test it was seen."""

    shown: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)
    faults: dict[str, str] = field(default_factory=dict)


def judged() -> Run:
    """What is known of the hints of this run. Starts a PostgreSQL if it needs its parser."""
    import hint_checks

    run, records = Run(), recorded()
    of_spark = {one.text: one.wrong for one in records if one.what == "parsed"}
    told = [one for one in records if one.what != "parsed"]
    texts: dict[tuple[str, str, bool], str] = {}
    for one in told:
        reached = sites_of(one)
        for site in reached:
            if len(reached) == 1:
                run.shown.add(site.name)
            if one.what == "typed":
                run.typed.add(site.value)
            texts.setdefault((one.text, site.at[0], one.what == "shown"), one.test)
    with parsers({(text, file) for text, file, _ in texts}, of_spark) as parse:
        for (text, file, shown), test in texts.items():
            found = list(hint_checks.faults(text, file, parse))
            found += hint_checks.placeholders(text) if shown else []
            for fault in found:
                run.faults.setdefault(f"{file}: {fault}", f"{text}\n    in {test}")
    return run


def sites_of(one: Record) -> list[Any]:
    """The site of an error: the innermost call that is one; of one that came as text, all with its words, if they
    have one value: those in Spark's expressions, if it came from there.
    """
    by_place, _ = _sites()
    found = next((by_place[place] for place in one.places if place in by_place), None)
    if found is not None:
        return [found]
    alike = _alike(one.text)
    from_spark = one.places[:1] and one.places[0][0] == FROM_SPARK
    return [site for site in alike if site.in_spark and from_spark] or alike


@cache
def _alike(text: str) -> list[Any]:
    alike = [site for pattern, site in _sites()[1] if pattern.fullmatch(text)]
    return alike if len({site.value for site in alike}) == 1 else []


@cache
def _sites() -> tuple[dict[Place, Any], list[tuple[re.Pattern[str], Any]]]:
    from hint_sites import sites

    return {site.at: site for site in sites()}, [(re.compile(one.text, re.S), one) for one in sites() if one.text]


@contextmanager
def parsers(texts: Iterable[tuple[str, str]], of_spark: dict[str, str]) -> "Iterator[dict[str, Parse]]":
    """A parser of each system of which there is SQL in these hints, by (text, file)."""
    import hint_checks
    import hint_words

    systems = defaultdict(set)
    for text, file in texts:
        systems[hint_checks.system(file)].update(hint_words.statements(text))
    with ExitStack() as held:
        made: dict[str, Parse] = {}
        if systems["postgres"]:
            made["postgres"] = held.enter_context(_postgres())
        made["duckdb"] = _duckdb
        made["spark"] = lambda sql: of_spark[sql] if sql in of_spark else _sqlglot(sql)
        yield made


@contextmanager
def _postgres() -> "Iterator[Parse]":
    """The server's own parser: the body of a block that is never entered is parsed, and not looked up."""
    import psycopg
    from postgres import running
    from postgres_database import open_folder

    with open_folder() as folder, running(folder) as server, psycopg.connect(server.dsn(), autocommit=True) as db:

        def parse(sql: str) -> str:
            try:
                db.execute(f"DO $hint$ BEGIN IF false THEN {sql}; END IF; END $hint$")  # type: ignore[call-overload]
            except psycopg.Error as error:
                return str(error).splitlines()[0]
            return ""

        yield parse


def _duckdb(sql: str) -> str:
    import duckdb

    try:
        duckdb.extract_statements(sql)
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    return ""


def _sqlglot(sql: str) -> str:
    """For runs without a Spark: near to its grammar."""
    import sqlglot

    try:
        sqlglot.parse_one(sql, dialect="databricks")
    except sqlglot.errors.SqlglotError as error:
        return str(error).splitlines()[0]
    return ""


def parse_in_spark(session: "SparkSession") -> None:
    """Spark's own parser, with those of the lakes, judges what was recorded so far; the records say so."""
    import hint_checks
    import hint_words
    from hint_log import append

    parser = session._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    lakes = [one for one in recorded() if one.places and hint_checks.system(one.places[0][0]) == "spark"]
    for sql in {sql for one in lakes for sql in hint_words.statements(one.text)}:
        wrong = ""
        try:
            parser.parsePlan(sql)
        except Exception as error:
            wrong = str(error).splitlines()[0]
        append({"what": "parsed", "text": sql, "wrong": wrong})


def names() -> set[str]:
    from hint_sites import sites

    return {site.name for site in sites()}


def values() -> set[str]:
    from hint_sites import sites

    return {site.value for site in sites()}


def listed(file: Path) -> set[str]:
    return set(file.read_text("utf-8").split())


def ratchet(run: Run) -> list[str]:
    """What the whole suite must type, and did not. (Some hints are shown by inputs at random only.)"""
    untyped = values() - run.typed - listed(NOT_TYPED)
    return [f"no test types the hint of {name}, in the state in which it is shown" for name in sorted(untyped)]


def figures(run: Run) -> str:
    done = len(listed(NOT_TYPED) & run.typed)
    shorten = f"; {done} of the list are typed: {FILE}=RECORD scripts/test; python tests/hints/hint_run.py RECORD"
    return (
        f"hints: {len(run.shown & names())} of {len(names())} sites shown by tests, "
        f"{len(run.typed & values())} of {len(values())} hints typed in their state{shorten if done else ''}"
    )


def shorten(files: Iterable[str]) -> None:
    """What the tests of these records type leaves the list, and so does what the product no longer has."""
    told = [_record(json.loads(line)) for file in files for line in Path(file).read_text("utf-8").splitlines()]
    reached = [(one.what, site) for one in told if one.what != "parsed" for site in sites_of(one)]
    typed = {site.value for what, site in reached if what == "typed"}
    left = sorted((values() - typed) & listed(NOT_TYPED))
    NOT_TYPED.write_text("".join(f"{name}\n" for name in left), "utf-8")


if __name__ == "__main__":
    shorten(sys.argv[1:])
