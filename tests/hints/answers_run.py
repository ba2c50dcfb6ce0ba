"""The answers with `--json` of a run of tests: what each process printed is as the schemas say."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from hint_run import ANSWERS_FILE
from jsonschema import Draft202012Validator

from backfill_cli.model.job import JobState
from backfill_cli.view.model import DEAD
from backfill_cli.view.schemas import ANSWERS, schema

STATES = {*JobState, DEAD}
NEVER_PRINTED = {"event"}
"""A hook reads it."""


def closed(told: Any) -> Any:
    """The same schema, which allows no field that it does not name."""
    if isinstance(told, dict):
        told = {key: closed(one) for key, one in told.items()}
        return told | {"additionalProperties": False} if "required" in told else told
    return [closed(one) for one in told] if isinstance(told, list) else told


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(closed(schema(name)))


def recorded() -> list[dict[str, str]]:
    file = Path(os.environ["BACKFILL_HINTS"] + ANSWERS_FILE)
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []


def faults(whole: bool) -> list[str]:
    """whole: of the whole suite, which must print each answer, and a job in each state."""
    found, names, states = {}, set(), set()
    by_class = {kind.__name__: name for name, (kind, _) in ANSWERS.items()}
    for one in recorded():
        name, answer = by_class[one["of"]], json.loads(one["text"])
        names.add(name)
        states |= {job["state"] for job in answer["jobs"]} if name == "status" else set()
        for error in validator(name).iter_errors(answer):
            place = "/".join(map(str, error.absolute_path))
            found.setdefault(f"the answer {name!r} is not as its schema says: {place}", one["test"])
    told = [f"{fault}\n    in {test}" for fault, test in found.items()]
    if whole:
        told += [f"no test prints the answer {name!r}" for name in sorted(ANSWERS.keys() - names - NEVER_PRINTED)]
        told += [f"no test prints the status of a job that is {state}" for state in sorted(STATES - states)]
    return told
