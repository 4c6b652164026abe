"""The rule by which a group consumes a topic, and so all of its queues, also those in which it has no offset."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace

from commitlake.pipelines.lag.subscriptions import BROADCASTING, SubscribedAt, Subscriptions
from commitlake.pipelines.lag.wanted import ALL
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.schemas.layouts.rocketmq.offset_keys import plain_group
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX


def consumers(
    committed: Collection[GroupTopic], subscriptions: Subscriptions, is_chosen: Callable[[GroupTopic], bool]
) -> dict[str, dict[str, SubscribedAt]]:
    """Return, by topic, the groups of a store that consume all queues of the topic.

    Besides those with an offset in the topic, these are groups whose clients subscribe to it, and the group to which a
    retry topic belongs. Groups that broadcast are left out: each of their clients keeps its own offsets.

    Args:
        committed: Groups with a topic in which they have an offset.
        is_chosen: Returns whether a group and topic is of interest.
    """
    keys = {*committed, *(GroupTopic(key.group, RETRY_PREFIX + key.group) for key in committed)}
    keys |= {key for key, one in subscriptions.found.items() if one.members}
    found: dict[str, dict[str, SubscribedAt]] = defaultdict(dict)
    for key in sorted(keys):
        subscribed = subscription_of(key, subscriptions)
        if is_chosen(key) and subscribed.message_model != BROADCASTING:
            found[key.topic][key.group] = subscribed
    return found


def subscription_of(key: GroupTopic, subscriptions: Subscriptions) -> SubscribedAt:
    """Return a group's subscription. A retry topic holds only messages of its group, so all of them are wanted.

    Args:
        key: The topic, and the group as in the key of its offsets, which also shows whether it broadcasts.
    """
    group = plain_group(key.group)
    found = subscriptions.of(key._replace(group=group))
    if group != key.group:
        found = replace(found, message_model=BROADCASTING)
    if key.topic.startswith(RETRY_PREFIX):
        return SubscribedAt(ALL, found.members, found.message_model)
    return found
