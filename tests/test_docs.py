"""What is written is true: commands parse, configs load, links lead somewhere, named tests exist."""

import inspect
import os
import re
import shlex
import tomllib
from pathlib import Path

import cases_covered
import messages
import pages
import pytest
import typer.main

from backfill_cli import config, contracts, registry
from backfill_cli.config import JobConfig
from backfill_cli.main import VERBS, app

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "tests/CASES_COVERED.md",
]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""What users read: a TOML block in it is a config, or sections of one."""
COMMANDS = ROOT / "docs/commands.md"
CONNECTORS = sorted({*registry.known(registry.UPSTREAMS), *registry.known(registry.SINKS)})
SAMPLES = sorted((ROOT / "sample_configs").glob("*.toml"))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, without what a list indents them by."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [inspect.cleandoc(text) for _, text in found]


def commands() -> list[tuple[str, str]]:
    """(page, command) of each mention of a verb of `backfill`, comments, pipes and closing quotes cut off."""
    found = []
    for page in [*PAGES, ROOT / "scripts/demo", *SAMPLES]:
        if page in (
            COMMANDS,
            messages.PAGE,
        ):  # usage lines, placeholders; what is there is run by tests of its own
            continue
        for line in page.read_text("utf-8").splitlines():
            said = re.findall(r"(?:^|[`\s])(?:\S*/|\")?\$?backfill\"? ([a-z][^`#|>)]*)", line)
            told = [re.split(r"\s{2,}|…| \|\| |\"$|\.$|,$|;", text.strip())[0].strip() for text in said]
            found += [(page.name, command) for command in told]
    return [(page, command) for page, command in found if command.split()[0] in VERBS]


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_a_command_in_the_docs_is_one(page: str, command: str) -> None:
    verb, *arguments = shlex.split(command)
    told = typer.main.get_command(app).commands[verb]
    if not arguments:
        return  # the verb's name in a sentence
    if verb == "config":
        verb, *arguments = arguments
        told = told.commands[verb]
    told.make_context(verb, arguments)


def test_the_docs_show_every_verb() -> None:
    shown = {command.split()[0] for page, command in commands() if page == "README.md"}
    assert shown >= set(VERBS), set(VERBS) - shown


def test_the_page_of_commands_is_up_to_date() -> None:
    assert COMMANDS.read_text("utf-8") == pages.commands(), "python scripts/pages.py commands > docs/commands.md"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_sample_config_loads(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert isinstance(config.load(sample), JobConfig)


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.name)
def test_every_toml_for_users_is_a_config_that_loads(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block without `[job]` shows sections of a config: they replace those of the README's config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notify.sh").touch(0o755)  # the program of the hooks that are shown
    for number, text in enumerate(blocks(page, "toml")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text if "job" in tomllib.loads(text) else _with_the_readmes_other_sections(text))
        assert isinstance(config.load(file), JobConfig), text


def test_the_readme_shows_a_config() -> None:
    assert blocks(ROOT / "README.md", "toml")


def _with_the_readmes_other_sections(text: str) -> str:
    shown = set(re.findall(r"^\[.*\]", text, re.MULTILINE))
    sections = re.split(r"^(?=\[)", blocks(ROOT / "README.md", "toml")[0], flags=re.MULTILINE)
    return "\n".join([*(part for part in sections if part.split("\n")[0].split("]")[0] + "]" not in shown), text])


def test_other_toml_in_the_docs_is_toml() -> None:
    for page in PAGES:
        for text in blocks(page, "toml"):
            tomllib.loads(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links, of pictures too: the file exists, and the heading if the link names one."""
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        path, _, part = link.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if part and target.suffix == ".md":
            assert part in _headings(target), f"{page.name}: {link}"


def _headings(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_every_page_of_docs_and_every_sample_can_be_reached_from_the_readme() -> None:
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", _readme())}
    there = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    there |= {f"sample_configs/{sample.name}" for sample in SAMPLES}
    assert there <= links, there - links


@pytest.mark.parametrize("name", [*CONNECTORS, "chain", "cutover", "operations"])
def test_a_page_says_its_limits(name: str) -> None:
    assert "## Limits" in (ROOT / f"docs/{name}.md").read_text("utf-8").splitlines()


@pytest.mark.parametrize("page", GUIDES, ids=lambda path: path.name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for name in re.findall(
        r"`((?:scripts|docs|tests|benchmarks|sample_configs|backfill_cli)/[\w./]+)`", page.read_text("utf-8")
    ):
        assert (ROOT / name).exists(), name


def test_scripts_that_the_docs_run_are_there() -> None:
    for page in [*PAGES, *SAMPLES]:
        for name in re.findall(r"(?:^|[\s`])(scripts/[a-z_]+(?:\.py)?)", page.read_text("utf-8")):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_benchmarks_that_the_readme_names_are_there() -> None:
    """`scripts/benchmark NAME` runs `benchmarks/NAME.py`; README and the script's usage list the same names."""
    (listed,) = re.findall(r"NAME is ([\w, \n]+)\.\n", _readme())
    names = set(re.findall(r"\w+", listed)) - {"or"}
    assert {name for name in re.findall(r"`scripts/benchmark (\w+)`", _readme()) if name != "NAME"} <= names
    assert all((ROOT / f"benchmarks/{name}.py").exists() for name in names), names
    (usage,) = re.findall(r"Usage: scripts/benchmark ([\w|]+)", (ROOT / "scripts/benchmark").read_text())
    assert set(usage.split("|")) == names


def test_the_two_commands_of_the_readme_can_be_run() -> None:
    for name in ("scripts/demo", "scripts/test"):
        assert name in _readme()
        assert os.access(ROOT / name, os.X_OK), name
    assert "scripts/test" in (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_contributing_names_every_method_of_a_sink() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for name in vars(contracts.Sink):
        if not name.startswith("_") and callable(getattr(contracts.Sink, name)):
            assert f"| `{name}` |" in text, name


def test_every_case_has_a_test_or_says_why_not() -> None:
    tests = cases_covered.existing()
    assert sorted(cases_covered.CASES) == list(range(1, 91))
    assert set(tests) <= set(cases_covered.CASES)
    without = [number for number, (_, reason) in cases_covered.CASES.items() if number not in tests and not reason]
    assert not without, f"cases {without} have neither a test nor a reason"


def test_the_page_of_messages_is_up_to_date() -> None:
    assert messages.PAGE.read_text("utf-8") == messages.page(), "run python tests/messages.py"


def test_every_message_has_a_group_and_a_hint_says_how_a_command_goes_on() -> None:
    """What the page is read off: each class of errors that is raised anywhere says something there."""
    told = {one.kind for one in messages.messages()}
    assert {"UsageError", "Fatal", "Transient", "HistoryGone", "Limit", "Gate"} <= told
    assert len(messages.messages()) > 600


def test_the_page_of_cases_is_up_to_date() -> None:
    assert cases_covered.PAGE.read_text("utf-8") == cases_covered.page(), "run python tests/cases_covered.py"


def _readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")
