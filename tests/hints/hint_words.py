"""What can be typed in the text of a hint: commands, SQL, settings. By a grammar of the tests' own."""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

COMMAND = re.compile(
    r"""\bbackfill\ (?P<verb>[a-z]+)\b
        (?P<words>(?:\ (?!or\b|and\b|then\b)(?:[^\s;,('"`\#]|'[^']*'|"[^"]*")+)*)""",
    re.VERBOSE,
)
SQL = re.compile(
    r"(?<![\w(])(?:(?:ALTER|CREATE|DROP|TRUNCATE) (?:TABLE|SYSTEM|ROLE|PUBLICATION|UNIQUE|INDEX|SCHEMA|VIEW)"
    r"|SELECT|GRANT|REVOKE|CALL|UPDATE|DELETE FROM|INSERT INTO) .*?(?=; |;?$|, (?:and|or|then|with)\b|, ?$)",
    re.MULTILINE,
)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
ROOTS = "job|upstream|tables|sink|transform|barrier|throttle|catch_up|retry|spool|spark|hooks"
OF_OTHERS = re.compile(
    r"pip install [^;,]*|[\w.]+ = \S+(?= in the connector)|\bspark\.(?!conf|master|remote)[\w.]+"
)
"""Commands and settings of others than this program."""
PATH = re.compile(rf"(?<![\w./'\"`-])(?!job\.toml)(?:{ROOTS})(?:\.[a-z_]+)+(?![\w/]|\.\w)")
SETTING = re.compile(r"(?<![\w.'\"`-])([a-z_]+(?:\.[a-z_]+)*) = (?=[\"'\[{\dtf])")


@dataclass(frozen=True)
class Setting:
    """An assignment as in the config file. value: as TOML reads it; None if that is not possible."""

    path: str
    value: Any
    text: str


def commands(text: str) -> list[str]:
    return [found[0].strip() for found in COMMAND.finditer(text)]


def statements(text: str) -> list[str]:
    return [found[0].strip() for found in SQL.finditer(text)]


def without_typed(text: str) -> str:
    """The hint without its commands, its SQL, and what is for other programs."""
    return OF_OTHERS.sub("", SQL.sub("", COMMAND.sub("", text)))


def settings(text: str) -> list[Setting]:
    rest = without_typed(text)
    return [_setting(found[1], rest[found.end() :]) for found in SETTING.finditer(rest)]


def paths(text: str) -> list[str]:
    return PATH.findall(without_typed(text))


def _setting(path: str, rest: str) -> Setting:
    """The value is the longest beginning of `rest` that is TOML. An ellipsis stands for further values."""
    ends = [at for at in range(1, len(rest) + 1) if rest[at - 1] in "\"'}]els0123456789"]
    for end in reversed(ends):
        try:
            value = tomllib.loads(f"x = {rest[:end].replace(', …]', ']')}")["x"]
        except tomllib.TOMLDecodeError:
            continue
        return Setting(path, value, f"{path} = {rest[:end]}")
    return Setting(path, None, f"{path} = {rest[:60]}")
