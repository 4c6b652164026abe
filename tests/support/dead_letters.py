"""Dead letters of a group, whose bodies have several shapes."""

from __future__ import annotations

import json

from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from tests.support.lakes import MIDNIGHT_MS
from tests.support.logs import new_message

FORMULA = "=cmd|' /C calc'!A1"
BODIES = (b'{"id": 1}', b"+text", b'{"id": 2}', b"-text", b'{"id": 3}', b"\xff\xfe")


def hostile_letter(number: int) -> NewMessage:
    """Return a dead letter with one of `BODIES`, and a tag that spreadsheets interpret as a formula."""
    return new_message(
        number,
        topic="%DLQ%billing",
        queue_id=0,
        body=BODIES[number],
        born_timestamp=MIDNIGHT_MS + 60_000 * number,
        reconsume_times=17,
        properties=(("RETRY_TOPIC", "orders"), ("TAGS", FORMULA), ("KEYS", f"order-{number}")),
    )


def letters_of(group: str, topic: str, count: int) -> list[NewMessage]:
    """Return dead letters of a group, half an hour apart; every other one has an id, the rest a name."""
    return [
        new_message(
            number,
            topic=f"%DLQ%{group}",
            queue_id=0,
            body=json.dumps({"id": number} if number % 2 else {"name": "x"}).encode(),
            born_timestamp=MIDNIGHT_MS + 1_800_000 * number,
            reconsume_times=17,
            properties=(
                ("RETRY_TOPIC", topic),
                ("TAGS", "paid"),
                ("KEYS", f"order-{number}"),
                ("UNIQ_KEY", f"C0A8010A1F9018B4AAC20000000{number:05}"),
                ("ORIGIN_MESSAGE_ID", "x"),
            ),
        )
        for number in range(count)
    ]
