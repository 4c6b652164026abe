"""Checks of the names in the arguments of a new replay of live topics: brokers, topics, groups and queues."""

from __future__ import annotations

from collections.abc import Sequence

from commitlake.connectors.rocketmq import Admin
from commitlake.jobs.arguments.names import did_you_mean, there_are, warn
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.replay.actions import PROG
from commitlake.jobs.replay.arguments import ReplayOptions
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind, kind_of
from commitlake.schemas.remoting.routes import subscribe_queues


def known_live_topics(arguments: ReplayOptions, admin: Admin, topics: Sequence[str]) -> list[str]:
    """Return those of some topics that exist. Warn of the others, and of queues that do not exist.

    Args:
        admin: client of the brokers.
        topics: the topics, with that of dead letters.

    Raises:
        JobError: if there is no such broker, or none of the topics.
        RocketMQError: if a server does not answer.
    """
    brokers = sorted(admin.clusters().broker_addr_table)
    for broker in arguments.broker:
        if broker not in brokers:
            near = did_you_mean(broker, brokers)
            raise JobError(f"--broker: the name server has no broker {broker!a}.{near}", there_are(brokers))
    known = admin.topics()
    unknown = [_unknown_topic(topic, known) for topic in topics if topic not in known]
    found = [topic for topic in topics if topic in known]
    if not found:
        kind = kind_of(topics[0])
        others = [topic for topic in known if kind_of(topic) is kind]
        prefix = DLQ_PREFIX if kind is Kind.DLQ else ""
        raise JobError(unknown[0], there_are(topic.removeprefix(prefix) for topic in others))
    for sentence in unknown:
        warn(PROG, sentence)
    if arguments.queue:
        queues = [queue for topic in found for queue in subscribe_queues(topic, admin.route(topic))]
        ids = {queue.queue_id for queue in queues if not arguments.broker or queue.broker_name in arguments.broker}
        for queue_id in arguments.queue:
            if queue_id not in ids:
                of_what, there = " or ".join(f"{topic!a}" for topic in found), ", ".join(map(str, sorted(ids)))
                warn(PROG, f"no queue {queue_id} of {of_what}; there are {there or 'none'}")
    return found


def _unknown_topic(topic: str, known: Sequence[str]) -> str:
    if kind_of(topic) is Kind.DLQ:
        group = topic.removeprefix(DLQ_PREFIX)
        groups = [name.removeprefix(DLQ_PREFIX) for name in known if kind_of(name) is Kind.DLQ]
        return f"the brokers have no dead letter of the group {group!a}.{did_you_mean(group, groups)}"
    return f"the brokers have no topic {topic!a}.{did_you_mean(topic, known)}"
