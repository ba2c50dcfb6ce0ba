"""What the catalog and the sinks keep comes back exactly."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.contracts import JobDefinition, SavedJob, SinkTable
from backfill_cli.model.checkpoint import Checkpoint, EpochRecord, Marker, Progress
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.job import Command, Control, Phase, Verb
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import EpochPlan, Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress, SplitStatus
from backfill_cli.model.upstream import Pin

KINDS = (
    Position,
    Pin,
    Checkpoint,
    EpochPlan,
    Staged,
    Progress,
    Control,
    Command,
    Marker,
    EpochRecord,
    SinkTable,
    JobDefinition,
    SavedJob,
)

# Halves of surrogate pairs are no text (a path with undecodable bytes is refused by its upstream); NaN != NaN.
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=("Cs",)), max_size=6),
    float: st.floats(allow_nan=False),
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Small values of a type as the model writes them."""
    if hint in SCALARS:
        return SCALARS[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values(args[0])
    if origin is Union or origin is UnionType:
        return st.one_of([values(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, args))
    if origin is Mapping:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    hints = get_type_hints(hint, include_extras=True)
    return st.builds(hint, **{field.name: values(hints[field.name]) for field in fields(hint)})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kept_value_comes_back_exactly(kind: type) -> None:
    @given(values(kind))
    @settings(max_examples=60, deadline=None)
    def round_trip(value: object) -> None:
        text = encode(value)
        back = decode(kind, text)
        assert back == value
        assert repr(back) == repr(value)  # also where 1 == 1.0 == True

    round_trip()


def checkpoint() -> Checkpoint:
    progress = SplitProgress(SplitStatus.CONSUMING, 7, 7, 3)
    return Checkpoint(3, 1, 2, "a", "{}", Phase.SNAPSHOT, Position.of({"c": "x"}), {("t,", "a,b"): progress})


def test_split_keys_with_commas_stay_apart() -> None:
    assert decode(Checkpoint, encode(checkpoint())) == checkpoint()


def test_a_cursor_that_looks_like_a_number_stays_text() -> None:
    position = Position.of({"a": "5", "b": 5, "c": 2**70})
    assert decode(Position, encode(position)).cursors == (("a", "5"), ("b", 5), ("c", 2**70))


def test_a_field_added_later_is_read_as_its_default_from_older_text() -> None:
    old = json.loads(encode(checkpoint()))
    del old["sink_schemas"], old["staged"]
    assert decode(Checkpoint, json.dumps(old)) == checkpoint()


def test_a_field_of_a_newer_version_is_left_out() -> None:
    newer = json.loads(encode(Command(1, Verb.THROTTLE, "cli", 5, 500.0))) | {"colour": "blue"}
    assert decode(Command, json.dumps(newer)) == Command(1, Verb.THROTTLE, "cli", 5, 500.0)


def test_text_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="epoch"):
        decode(Marker, "{}")


def test_an_estimate_without_end_survives() -> None:
    open_ended = Progress(Phase.SNAPSHOT, 1, 0, None, 0, 0, {}, 0, None, None, (3.0, math.inf), Limit("nothing"))
    assert decode(Progress, encode(open_ended)) == open_ended


@pytest.mark.seconds
def test_a_checkpoint_with_100_000_splits_is_written_and_read_in_seconds() -> None:
    splits = {("orders", f"part-{i:06d}.parquet"): SplitProgress(epoch=i) for i in range(100_000)}
    wide = replace(checkpoint(), splits=splits)
    assert decode(Checkpoint, encode(wide)) == wide
