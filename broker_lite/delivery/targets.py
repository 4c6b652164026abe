"""Delivery targets: the topic and queue that a parked record names in its properties.

A broker writes REAL_TOPIC and REAL_QID itself, after checking both. A record in a store's files may contain anything;
it must not be delivered to the broker's internal topics, or create queues that its topic does not have.
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
    """Error for a record whose properties do not name a valid delivery target."""


def delivery_target(store: MessageStore, known: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic and queue to which a parked record must be delivered.

    A topic may have fewer queues than when the message was sent: then the message goes to one of its current queues.

    Args:
        store: store with the topics.
        known: properties of the parked record.

    Raises:
        TargetError: if a property is missing, or names an internal topic or an impossible queue.
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
        _logger.warning("%s has only %d queues: a message for queue %d goes to another queue", topic, queues, queue_id)
        queue_id %= queues
    return topic, queue_id


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS])
