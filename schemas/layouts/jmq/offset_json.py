"""File `offset/offset.json`: the positions of all applications in all queues.

    {"version":1,"updated":1700000000000,
     "consumers":{"<topic>":{"<app>":{"<queueId>":{"ack":120,"pull":130,"time":1700000000000}}}}}

`ack` is the queue offset up to which all messages are processed, `pull` the next one to be handed out (not below
`ack`), `time` the time of the last acknowledgement, ms. The previous version is kept as `offset.json.bak`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.integer_parsing import INT64_MAX, int_in_range, parse_int
from commitlake.schemas.layouts.jmq.journal import MAX_QUEUE_ID

FOLDER = "offset"
FILE_NAME = "offset.json"
VERSION = 1


class ConsumedQueue(NamedTuple):
    """Queue of a topic, as consumed by one application."""

    topic: str
    app: str
    queue_id: int


class ConsumerPosition(NamedTuple):
    """An application's acknowledged offset in a queue, its next offset to read, and the last acknowledgement's time."""

    ack: int
    pull: int
    time: int


Positions = dict[ConsumedQueue, ConsumerPosition]


def parse_offsets(data: bytes) -> tuple[Positions, int]:
    """Parse an `offset.json`; return its positions, and the time at which it was written, ms.

    Raises:
        LayoutError: if the file is invalid.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise LayoutError("offset.json", 0, "a JSON document", str(error)) from error
    fields = _check_object("offset.json", document)
    if (version := fields.get("version")) != VERSION:
        raise LayoutError("version", 0, f"{VERSION}", f"{version!r}"[:100])
    positions = {}
    for topic, apps in _check_object("consumers", fields.get("consumers")).items():
        for app, queues in _check_object(topic, apps).items():
            for queue_id, position in _check_object(app, queues).items():
                place = ConsumedQueue(topic, app, _parse_queue_id(queue_id))
                positions[place] = _parse_position(place, _check_object(queue_id, position))
    return positions, _check_number("updated", fields.get("updated"))


def _check_object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise LayoutError(name[:100], 0, "an object", f"{value!r}"[:100])
    return value


def _parse_queue_id(text: str) -> int:
    number = parse_int(text, 0, MAX_QUEUE_ID)
    if number is None or str(number) != text:
        raise LayoutError("queue_id", 0, f"0 to {MAX_QUEUE_ID}", repr(text[:100]))
    return number


def _parse_position(queue: ConsumedQueue, fields: Mapping[str, Any]) -> ConsumerPosition:
    position = ConsumerPosition(*(_check_number(name, fields.get(name)) for name in ConsumerPosition._fields))
    if position.ack > position.pull:
        raise LayoutError("pull", 0, f"at least ack, {position.ack}, for {tuple(queue)}", f"{position.pull}")
    return position


def _check_number(name: str, value: Any) -> int:
    number = int_in_range(value, 0, INT64_MAX)
    if number is None:
        raise LayoutError(name, 0, f"a number from 0 to {INT64_MAX}", f"{value!r}"[:100])
    return number


def serialize_offsets(positions: Mapping[ConsumedQueue, ConsumerPosition], update_time_ms: int) -> bytes:
    """Return the content of an `offset.json`.

    Args:
        positions: positions of all applications and queues.
        update_time_ms: time of the write, ms.
    """
    consumers: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    for (topic, app, queue_id), position in sorted(positions.items()):
        consumers.setdefault(topic, {}).setdefault(app, {})[str(queue_id)] = position._asdict()
    document = {"version": VERSION, "updated": update_time_ms, "consumers": consumers}
    return json.dumps(document, separators=(",", ":")).encode()
