"""The client's messages of ranges of offsets, in lists: exactly those of a range, or an error."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from backfill_cli.errors import START_OVER, HistoryGone, Transient
from backfill_cli.kafka.cluster import Connection
from backfill_cli.kafka.edge import Complaints, asking, client, ours, unreachable
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.units import spell_duration

_MESSAGES = 10_000
_BATCH_BYTES = 8 << 20
"""A batch has fewer messages if they are large, so that a task's memory is bounded."""

_POLL_S = 0.1
"""How long a poll waits for messages that never come: those at offsets of markers, and those compacted away."""

SILENCE_S = 30.0
"""No message and no end of the log for this long: the broker is gone."""

GONE_HINT = "keep the topic longer (retention.ms), and " + START_OVER


def messages(connection: Connection, topic: str, task: Range) -> Iterator[list[Any]]:
    """The client's messages of one range in order of their offsets, in lists.

    Raises HistoryGone if the log begins after `task.after`; this is checked again at the end, because what was
    deleted meanwhile may have been skipped silently. Raises Transient if the broker is silent, or the log ends
    before the range does.
    """
    kafka = client()
    complaints = Complaints()
    where = kafka.TopicPartition(topic, task.partition, task.after)
    with asking(connection, f"reading partition {task.partition}", complaints):
        consumer = kafka.Consumer({**settings(connection, task.up_to - task.after), **complaints.settings()})
        try:
            consumer.assign([where])
            yield from _messages(consumer, where, connection, task, complaints)
            oldest, _ = consumer.get_watermark_offsets(where, timeout=SILENCE_S)
            if oldest > task.after:
                raise gone(task.partition, task.after, oldest)
        finally:
            consumer.close()


def settings(connection: Connection, ahead: int) -> dict[str, Any]:
    """Of a consumer that fetches about so many messages ahead, no more than it is to read."""
    return {
        "queued.min.messages": min(100_000, ahead),
        # the default, 1 s, leaves the task waiting whenever its queue was full: 2.5 times as slow (measured)
        "fetch.queue.backoff.ms": 1,
        # with the default, 500 ms, a range that ends in a marker waited that long to learn that nothing follows
        "fetch.wait.max.ms": 20,
        **connection.settings(),
        # no group: nothing is committed to the broker, and what is read is decided here
        "group.id": "backfill",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": connection.isolation,
    }


def _messages(
    consumer: Any, where: Any, connection: Connection, task: Range, complaints: Complaints
) -> Iterator[list[Any]]:
    """The range's messages in lists. Ends when the reader is at `up_to` or beyond, with or without messages."""
    kafka = client()
    reached, size, quiet_since = task.after, 1_000, time.monotonic()
    ended: int | None = None  # where the log ends, according to the newest poll that returned something
    while reached < task.up_to:
        messages = consumer.consume(min(size, task.up_to - reached), _POLL_S)
        if not messages:
            if time.monotonic() - quiet_since > SILENCE_S:
                if ended is not None and not complaints.last:
                    raise _ends_early(connection, task, reached)
                raise _silent(connection, task, reached, complaints)
            continue
        ended = None
        if messages[-1].error() or any(map(kafka.Message.error, messages)):
            messages, ended = _without_events(messages, consumer, where, connection, task, complaints)
        if messages:
            quiet_since = time.monotonic()
            reached = messages[-1].offset() + 1
            size = _next_size(messages)
            while messages and messages[-1].offset() >= task.up_to:
                messages.pop()
            if messages:
                yield messages
        if ended is not None:
            reached = max(reached, ended)


def _without_events(
    messages: list[Any], consumer: Any, where: Any, connection: Connection, task: Range, complaints: Complaints
) -> tuple[list[Any], int | None]:
    """The messages alone, and the offset at which the log's end was reported. Raises what the client reports."""
    error_of = client().KafkaError
    ended = None
    for message in messages:
        error = message.error()
        if error is None:
            continue
        if error.code() == error_of._PARTITION_EOF:
            ended = message.offset()
        elif error.code() in (error_of._AUTO_OFFSET_RESET, error_of.OFFSET_OUT_OF_RANGE):
            raise gone(task.partition, task.after, _oldest(consumer, where))
        elif error.fatal() or not error.retriable():
            raise ours(error, connection, f"reading partition {task.partition}", complaints)
    return [message for message in messages if message.error() is None], ended


def _next_size(messages: Sequence[Any]) -> int:
    """How many messages the next poll may return, from the size of the first of these."""
    average = sum(len(m.value() or b"") for m in messages[:10]) / len(messages[:10]) + 100
    return max(1, min(_MESSAGES, int(_BATCH_BYTES / average)))


def _oldest(consumer: Any, where: Any) -> int | None:
    """The offset at which the partition's log begins. None where the broker does not say so in time."""
    try:
        oldest, _ = consumer.get_watermark_offsets(where, timeout=SILENCE_S)
    except client().KafkaException:
        return None
    return int(oldest)


def gone(partition: int, needed: int, oldest: int | None) -> HistoryGone:
    """The error for offsets that the log no longer has."""
    begins = "" if oldest is None else f": its log begins at {oldest}"
    return HistoryGone(f"partition {partition} no longer has offset {needed}{begins}", GONE_HINT)


def _silent(connection: Connection, task: Range, reached: int, complaints: Complaints) -> Transient:
    because = f" ({connection.scrubbed(complaints.last)})" if complaints.last else ""
    return Transient(
        f"{connection.servers}: partition {task.partition} sent nothing for {spell_duration(SILENCE_S)} at offset "
        f"{reached}{because}",
        unreachable(connection),
    )


def _ends_early(connection: Connection, task: Range, reached: int) -> Transient:
    return Transient(
        f"{connection.servers}: partition {task.partition} ends at offset {reached}, but reached "
        f"{task.up_to} when the read was planned",
        "its leader may have changed: wait for it; if records were lost, " + START_OVER,
    )
