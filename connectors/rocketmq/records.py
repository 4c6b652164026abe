"""Parsing of the stored records in an answer's body, which are consecutive as in the CommitLog."""

from __future__ import annotations

from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.network import PeerAnswer
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.commitlog import Message, parse_message


def parse_records(answer: PeerAnswer) -> list[Message]:
    """Parse the messages in the body of an answer to a pull or query.

    Raises:
        ProtocolError: if it contains anything but complete, intact records.
    """
    body = answer.body
    messages: list[Message] = []
    position = 0
    while position < len(body):
        try:
            parsed = parse_message(body, position)
        except LayoutError as error:
            raise ProtocolError(
                f"{answer.address}: expected stored records in the broker's answer, found other bytes: {error}"
            ) from None
        if parsed is None:
            raise ProtocolError(
                f"{answer.address}: expected whole records in the broker's answer, found one that is cut off at byte "
                f"{position}"
            )
        message, size = parsed
        position += size
        messages.append(message)
    return messages
