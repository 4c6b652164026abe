"""The topic and queue that a stored record's properties name: where a waiting message is delivered.

A broker writes REAL_TOPIC and REAL_QID itself, after it has checked both. A record in a store's files may hold anything
else, and must not be delivered to the broker's own topics or make queues that its topic does not have.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from commitlake.broker_lite.stores.engine.topic_names import is_broker_topic, is_valid_topic
from commitlake.broker_lite.stores.rocketmq import MAX_QUEUES, MessageStore
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.numbers import parse_int32
from commitlake.schemas.layouts.rocketmq import properties as props

_SHOWN_CHARACTERS = 80
_logger = logging.getLogger(__name__)


class TargetError(CommitLakeError, ValueError):
    """A record whose properties do not name a place where a message may go."""


def real_place(store: MessageStore, known: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic and queue to which a parked record is to be delivered.

    A topic may have fewer queues than when the message was sent: the message goes to one of those that it has now.

    Args:
        store: whose topics count.
        known: the properties of the parked record.

    Raises:
        TargetError: if a property is missing, names one of the broker's own topics, or no possible queue.
    """
    topic = known.get(props.REAL_TOPIC, "")
    if not is_valid_topic(topic) or is_broker_topic(topic):
        raise TargetError(f"{props.REAL_TOPIC}: expected a topic that producers may use, found {_shown(topic)}")
    text = known.get(props.REAL_QID, "")
    queue_id = parse_int32(text)
    queues = store.config.topics.queue_count(topic)
    if queue_id is None or not 0 <= queue_id < max(queues, MAX_QUEUES):
        raise TargetError(f"{props.REAL_QID}: expected a queue of {topic}, found {_shown(text)}")
    if queues and queue_id >= queues:
        _logger.warning("%s has %d queues, not queue %d: its message goes to another", topic, queues, queue_id)
        queue_id %= queues
    return topic, queue_id


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS])
