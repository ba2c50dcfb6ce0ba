"""The client's messages of ranges of offsets, in lists: exactly those of the ranges, or an error.

One consumer reads the ranges of a task, of several topics at once: to start one costs 11 ms (measured).
"""

import time
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from backfill_cli.errors import START_OVER, HistoryGone, Transient
from backfill_cli.kafka.connection import Connection
from backfill_cli.kafka.edge import Complaints, asking, client, ours, unreachable
from backfill_cli.kafka.ranges import Range, Span, Wanted
from backfill_cli.model.units import spell_count, spell_duration

MESSAGES = 10_000
BATCH_BYTES = 8 << 20
"""A batch has fewer messages if they are large, so that a task's memory is bounded."""

_POLL_S = 0.1
"""How long a poll waits for messages that never come: those at offsets of markers, and those compacted away."""

_FEW = 1_000
"""Of so many messages the first one is waited for, and then those are taken that came with it."""

SILENCE_S = 30.0
"""No message and no end of the log for this long: the broker is gone."""

GONE_HINT = "keep the topic longer (retention.ms), and " + START_OVER


def messages(connection: Connection, topic: str, task: Range) -> Iterator[list[Any]]:
    """The client's messages of one range in order of their offsets, in lists. Raises as `read`."""
    for _, found in read(connection, [whole(Wanted("", topic, task))]):
        yield found


def whole(wanted: Wanted) -> Span:
    """What is wanted, as a span by itself."""
    one = wanted.range
    return Span(wanted.topic, one.partition, one.after, one.up_to, (wanted,))


def read(connection: Connection, spans: Sequence[Span]) -> Iterator[tuple[int, list[Any]]]:
    """The client's messages of these spans, in lists, each with the index of its span, in order of its offsets.

    Raises HistoryGone if the log begins after where a span does. If offsets are missing, this is checked again at
    the end, because what was deleted meanwhile may have been skipped silently. Raises Transient if the broker is
    silent, or a log ends before its span does.
    """
    kafka = client()
    complaints = Complaints()
    ahead = sum(span.up_to - span.after for span in spans)
    with asking(connection, _doing(spans), complaints):
        consumer = kafka.Consumer({**settings(connection, ahead), **complaints.settings()})
        try:
            for turn in _turns(spans):
                consumer.assign([one.where for one in turn])
                yield from _messages(consumer, turn, connection, complaints)
        finally:
            consumer.close()


def _doing(spans: Sequence[Span]) -> str:
    if len(spans) == 1:
        return f"reading partition {spans[0].partition}"
    return f"reading {spell_count(len(spans), 'partition')}"


def _turns(spans: Sequence[Span]) -> "list[list[_Reading]]":
    """The spans that a consumer can read at once: one of each partition."""
    turns: list[list[_Reading]] = []
    seen: dict[tuple[str, int], int] = {}
    for at, span in enumerate(spans):
        turn = seen[span.topic, span.partition] = seen.get((span.topic, span.partition), -1) + 1
        turns += [[]] * (turn == len(turns))
        turns[turn] = [*turns[turn], _Reading(at, span)]
    return turns


class _Reading:
    """A span that is being read. reached: next offset. delivered: how many messages. ended: where the log ends,
    according to the newest poll that returned something of it."""

    def __init__(self, at: int, span: Span) -> None:
        self.at, self.span = at, span
        self.where = client().TopicPartition(span.topic, span.partition, span.after)
        self.reached, self.delivered = span.after, 0
        self.ended: int | None = None

    def __str__(self) -> str:
        return f"topic '{self.span.topic}': partition {self.span.partition}"


def settings(connection: Connection, ahead: int) -> dict[str, Any]:
    """Of a consumer that fetches about so many messages ahead, no more than it is to read."""
    return {
        "queued.min.messages": min(100_000, ahead),
        # the default, 1 s, leaves the task waiting whenever its queue was full: 2.5 times as slow (measured)
        "fetch.queue.backoff.ms": 1,
        # with the default, 500 ms, a range that ends in a marker waited that long to learn that nothing follows
        "fetch.wait.max.ms": 20,
        **connection.settings("consumer"),
        # no group: nothing is committed to the broker, and what is read is decided here
        "group.id": "backfill",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": connection.isolation,
    }


def _messages(
    consumer: Any, turn: Sequence[_Reading], connection: Connection, complaints: Complaints
) -> Iterator[tuple[int, list[Any]]]:
    """The spans' messages in lists. Ends when each is at its end or beyond, with or without messages."""
    left = {(one.span.topic, one.span.partition): one for one in turn if one.reached < one.span.up_to}
    size, quiet_since = 1_000, time.monotonic()
    while left:
        wanted = sum(one.span.up_to - one.reached for one in left.values())
        few = wanted <= _FEW  # a poll waits for all that it asks for, and offsets of markers are never delivered
        found = consumer.consume(1 if few else min(size, wanted), _POLL_S)
        if few and found and wanted > 1:
            found += consumer.consume(wanted - 1, 0)
        if not found:
            if time.monotonic() - quiet_since > SILENCE_S:
                raise _stuck(connection, list(left.values()), complaints)
            continue
        for place_of, part in _by_place(found, turn):
            one = left.get(place_of)
            if one is None:  # read already, or an error that is of no partition
                _refuse_errors(part, connection, complaints)
                continue
            messages = _without_events(part, consumer, one, connection, complaints)
            if messages:
                quiet_since = time.monotonic()
                size = _next_size(messages)
                one.reached = messages[-1].offset() + 1
                while messages and messages[-1].offset() >= one.span.up_to:
                    messages.pop()
                one.delivered += len(messages)
                if messages:
                    yield one.at, messages
            one.reached = max(one.reached, one.ended or 0)
            if one.reached >= one.span.up_to:
                del left[place_of]
                if left:
                    # Never a pause: it lasts beyond the next assignment, and to resume while that one begins
                    # waits a second, or loses its beginning (of 180 turns one was never sent a message).
                    consumer.incremental_unassign([one.where])
    for one in turn:
        if one.delivered < one.span.up_to - one.span.after:
            oldest, _ = consumer.get_watermark_offsets(one.where, timeout=SILENCE_S)
            if oldest > one.span.after:
                raise gone(one.span.topic, one.span.partition, one.span.after, oldest)


def _by_place(found: list[Any], turn: Sequence[_Reading]) -> Iterator[tuple[tuple[str, int], list[Any]]]:
    """What a poll returned, by topic and partition."""
    if len(turn) == 1:
        yield (turn[0].span.topic, turn[0].span.partition), found
        return
    of, first = client().Message, turn[0].span.topic
    topics = repeat(first) if all(one.span.topic == first for one in turn) else map(of.topic, found)
    for place_of, part in groupby(zip(topics, map(of.partition, found), found), itemgetter(0, 1)):  # noqa: B905
        yield place_of, list(map(itemgetter(2), part))


def _without_events(
    found: list[Any], consumer: Any, one: _Reading, connection: Connection, complaints: Complaints
) -> list[Any]:
    """The messages alone; where the log's end was reported is noted. Raises what the client reports."""
    one.ended = None
    if not found[-1].error() and not any(map(client().Message.error, found)):
        return found
    error_of = client().KafkaError
    for message in found:
        error = message.error()
        if error is None:
            continue
        if error.code() == error_of._PARTITION_EOF:
            one.ended = message.offset()
        elif error.code() in (error_of._AUTO_OFFSET_RESET, error_of.OFFSET_OUT_OF_RANGE):
            raise gone(one.span.topic, one.span.partition, one.span.after, _oldest(consumer, one.where))
        elif error.fatal() or not error.retriable():
            raise ours(error, connection, f"reading partition {one.span.partition}", complaints)
    return [message for message in found if message.error() is None]


def _refuse_errors(found: Sequence[Any], connection: Connection, complaints: Complaints) -> None:
    for message in found:
        error = message.error()
        if error is None or error.code() == client().KafkaError._PARTITION_EOF:
            continue
        if error.fatal() or not error.retriable():
            raise ours(error, connection, "reading", complaints)


def _next_size(messages: Sequence[Any]) -> int:
    """How many messages the next poll may return, from the size of the first of these."""
    average = sum(len(m.value() or b"") for m in messages[:10]) / len(messages[:10]) + 100
    return max(1, min(MESSAGES, int(BATCH_BYTES / average)))


def _oldest(consumer: Any, where: Any) -> int | None:
    """The offset at which the partition's log begins. None where the broker does not say so in time."""
    try:
        oldest, _ = consumer.get_watermark_offsets(where, timeout=SILENCE_S)
    except client().KafkaException:
        return None
    return int(oldest)


def gone(topic: str, partition: int, needed: int, oldest: int | None) -> HistoryGone:
    """The error for offsets that the log no longer has."""
    begins = "" if oldest is None else f": its log begins at {oldest}"
    return HistoryGone(f"topic '{topic}': partition {partition} no longer has offset {needed}{begins}", GONE_HINT)


def _stuck(connection: Connection, left: Sequence[_Reading], complaints: Complaints) -> Transient:
    """The error where nothing came for SILENCE_S: a log ends too early, or the broker is silent."""
    ended = [one for one in left if one.ended is not None]
    if len(ended) == len(left) and not complaints.last:
        one = ended[0]
        return Transient(
            f"{connection.servers}: {one} ends at offset {one.reached}, but reached {one.span.up_to} when the "
            "read was planned",
            "its leader may have changed: wait for it; if records were lost, " + START_OVER,
        )
    one = next(one for one in left if one.ended is None or complaints.last)
    because = f" ({connection.scrubbed(complaints.last)})" if complaints.last else ""
    return Transient(
        f"{connection.servers}: {one} sent nothing for {spell_duration(SILENCE_S)} at offset "
        f"{one.reached}{because}",
        unreachable(connection),
    )
