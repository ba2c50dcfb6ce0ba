"""Tables whose log is taken window by window, with values that are stored out of line."""

from collections.abc import Iterator

import pytest
from log_world import PUBLICATION, World
from postgres import Server
from postgres_database import database

BIG = "repeat('{0}', 3000)"
"""Stored out of line, and not compressed: an update of other columns does not send it."""

TABLES = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE TABLE whole (id int PRIMARY KEY, v int, big text)",
    "CREATE TABLE part (v int, id int PRIMARY KEY, big text, mood mood, more text)",
    "CREATE TABLE two (a int, v int, b text, PRIMARY KEY (b, a))",
    "CREATE TABLE other (id int PRIMARY KEY, v int)",
    "ALTER TABLE whole ALTER big SET STORAGE EXTERNAL",
    "ALTER TABLE part ALTER big SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
)
KEYS = {"whole": ["id"], "part": ["id"], "two": ["a", "b"]}


@pytest.fixture(scope="module")
def shared(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Tables whose columns stay as they are."""
    with database(postgres) as db:
        db(*TABLES)
        world = World(db, tmp_path_factory.mktemp("taken"), KEYS)
        db(f'ALTER PUBLICATION "{PUBLICATION}" ADD TABLE other')
        yield world


@pytest.fixture
def world(shared: World) -> World:
    shared.db("TRUNCATE other")
    shared.clear()
    return shared
