"""A test types a hint, in the state in which it was shown: what it can be asked for, and what is then recorded."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import metadata

import hint_words
from hint_log import Place, append, latest
from hint_run import recorded
from packaging.requirements import Requirement

from backfill_cli.errors import BackfillError, Hint

_OPTION = re.compile(r"(?<!\S)(--[a-z-]+)(?: (?!or\b|and\b)([^\s,;(-][^\s,;]*))?")


class Typed:
    """The hint of one refusal. What the test takes from it, it types; at least one thing."""

    def __init__(self, hint: str) -> None:
        self.hint = hint
        self.taken = False

    def commands(self, **files: str) -> list[list[str]]:
        """The words of each command after `backfill`. files: for a placeholder, as `FILE="job.toml"`."""
        self.taken = True
        found = [shlex.split(command)[1:] for command in hint_words.commands(self.hint)]
        assert found, f"no command in {self.hint!r}"
        return [[files.get(word, word) for word in words] for words in found]

    def statements(self) -> list[str]:
        """Each SQL statement."""
        self.taken = True
        found = hint_words.statements(self.hint)
        assert found, f"no SQL in {self.hint!r}"
        return found

    def settings(self) -> dict[str, object]:
        """Each option with the value that it shows."""
        self.taken = True
        found = {one.path: one.value for one in hint_words.settings(self.hint)}
        assert found, f"no setting in {self.hint!r}"
        return found

    def options(self) -> dict[str, str]:
        """Each option of the command that was refused, with its value; empty for a flag."""
        self.taken = True
        found = {one[1]: one[2] or "" for one in _OPTION.finditer(self.hint)}
        assert found, f"no option in {self.hint!r}"
        return found

    def packages(self) -> set[str]:
        """The packages that its `pip install` of an extra of ours brings."""
        self.taken = True
        asked = Requirement(re.findall(r"pip install '(backfill-cli\[[^']*)'", self.hint)[0])
        of_extras = [{"extra": name} for name in asked.extras]
        told = map(Requirement, metadata(asked.name).get_all("Requires-Dist") or ())
        return {one.name for one in told if one.marker and any(map(one.marker.evaluate, of_extras))}

    def run_in_shell(self, program: str) -> None:
        """What the hint lets a shell do by this program, to its end."""
        self.taken = True
        found = re.search(rf"\b{program} .*?(?=; |, (?:or|and)\b|, then|$)", self.hint)
        assert found, f"no {program} in {self.hint!r}"
        subprocess.run(found[0], shell=True, check=True, timeout=60)

    def says(self, what: str) -> None:
        """The test does this by itself: the hint asks for it in these words."""
        self.taken = True
        assert what in self.hint, f"{what!r} is not in {self.hint!r}"


@contextmanager
def typed(refused: BackfillError | Hint | str) -> Iterator[Typed]:
    """In the block the hint is typed, and the promised state is seen to be reached; then the site counts as typed.

    refused: the error, or the hint as a command printed it.
    """
    hint = str(refused.hint) if isinstance(refused, BackfillError) else _one_line(str(refused))
    asked = Typed(hint)
    yield asked
    assert asked.taken, "nothing of the hint was typed"
    append({"what": "typed", "at": _places(refused), "text": hint})


def _places(refused: BackfillError | Hint | str) -> list[Place]:
    """Who built it: what a command printed is looked up, in this process or in what its own recorded."""
    if isinstance(refused, BackfillError):
        found: list[Place] = getattr(refused, "hint_places", [])
        return found
    text = _one_line(str(refused))
    here = (at for said, at in reversed(latest.items()) if _one_line(said) == text)
    there = ([list(one) for one in each.places] for each in reversed(recorded()) if _one_line(each.text) == text)
    found_at = next(here, None) or next(there, None)
    assert found_at, f"no error had this hint: {refused!r}"
    return found_at


def _one_line(text: str) -> str:
    return " ".join(text.split())
