"""docs/config.md and the JSON Schema say what the models say."""

import re
from pathlib import Path
from typing import Any

import pages

from backfill_cli.config.schema import json_schema

PAGE = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == pages.config(), "python scripts/pages.py config > docs/config.md"


def test_every_option_says_what_it_means() -> None:
    rows = re.findall(r"^\| `.*$", pages.config(), re.MULTILINE)
    assert len(rows) > 30
    assert [row for row in rows if row.endswith(("|  |", "| . |"))] == []


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = json_schema()

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [str(value[key]) for key in value if key == "$ref"] + [
                r for inner in value.values() for r in references(inner)
            ]
        return [r for inner in value for r in references(inner)] if isinstance(value, list) else []

    found = references(schema)
    assert found
    assert {name.removeprefix("#/$defs/") for name in found} <= set(schema["$defs"])
    parts = [kind["properties"] for kind in schema["properties"]["upstream"]["oneOf"]]
    assert {part["type"]["const"] for part in parts if "type" in part} >= {"files", "kafka"}
    assert [sorted(part) for part in parts if "type" not in part] == [["changes", "snapshot"]]


def test_no_description_begins_with_a_choice_of_an_option() -> None:
    """A config that `init` writes has, beside an option, what its description begins with."""
    told, chosen = parts(json_schema(), "description"), parts(json_schema(), "enum")
    names = {name for choices in chosen for name in choices if isinstance(name, str)}
    assert {"rows", "debezium", "avro", "parquet"} <= names
    begins = [(found[1].lower(), text) for text in told if (found := re.match(r"([\w-]+)[:,]", text))]
    assert [text for word, text in begins if word in names] == []


def parts(value: Any, name: str) -> list[Any]:
    """All that a schema has under this name, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [value[name]] if isinstance(value, dict) and isinstance(value.get(name), (str, list)) else []
    return found + [one for each in inner for one in parts(each, name)]
