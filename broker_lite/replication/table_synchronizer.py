"""Synchronization of data that is not in the log: topics, groups, and offsets of groups and delay levels.

A slave copies them from its master every ten seconds. It then has exactly the master's topics and groups; consumer
offsets that the master has replace its own. Source: SlaveSynchronize (5.5.0).
"""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeVar

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.groups import is_valid_group
from commitlake.broker_lite.errors import PeerError
from commitlake.broker_lite.replication.peer_client import PeerClient
from commitlake.broker_lite.stores.engine.topic_names import is_valid_topic
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.topics import split_offset_key
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode, describe_response_code
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import parse_body, to_json
from commitlake.schemas.remoting.statistics_bodies import ConsumerOffsetTable, DelayOffsetTable
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, SubscriptionGroups, TopicConfigs

B = TypeVar("B", bound=NamedTuple)
_logger = logging.getLogger(__name__)


class TableSynchronizer:
    """Client that copies the master's tables (topics, groups and offsets) to a slave."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics_version: DataVersion | None = None
        self._groups_version: DataVersion | None = None

    async def run(self, master: PeerClient) -> bool:
        """Copy all tables from the master once; return False if an error stopped this before the last table."""
        try:
            self.replace_topics(await self._request_table(master, RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigs))
            self.replace_consumer_offsets(
                await self._request_table(master, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable)
            )
            self.replace_delay_offsets(
                await self._request_table(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable)
            )
            self.replace_groups(
                await self._request_table(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroups)
            )
        except (OSError, TimeoutError, LayoutError, CommandError, PeerError) as error:
            _logger.warning("cannot copy all topics, groups and offsets from master %s:%d: %r", *master.address, error)
            return False
        return True

    @staticmethod
    async def _request_table(master: PeerClient, request_code: RequestCode, table_type: type[B]) -> B:
        answer = await master.ask(Command(request_code))
        if answer.code != ResponseCode.SUCCESS:
            raise PeerError(
                f"the master did not answer request {request_code} with success: "
                f"{describe_response_code(answer.code)}, {answer.remark}"
            )
        return parse_body(table_type, answer.body)

    def replace_topics(self, master_topics: TopicConfigs) -> None:
        """Replace the topics by those of the master; queues of a removed topic stay until their messages expire."""
        topics, config = self._broker.topics, self._broker.store.config.topics
        if master_topics.data_version == self._topics_version:
            return
        wanted = {name: one for name, one in master_topics.topic_config_table.items() if is_valid_topic(name)}
        for name in [name for name in config.entries if name not in wanted]:
            topics.remove(name)
        for name, one in wanted.items():
            if topics.find(name) != one:
                topics.put(one._replace(topic_name=name))
        config.mark_changed()
        config.document["dataVersion"] = to_json(master_topics.data_version)
        # Last, so that an interrupted copy is repeated.
        self._topics_version = master_topics.data_version

    def replace_groups(self, master_groups: SubscriptionGroups) -> None:
        """Replace the groups by the master's."""
        groups, config = self._broker.groups, self._broker.store.config.groups
        if master_groups.data_version == self._groups_version:
            return
        wanted = {name: one for name, one in master_groups.subscription_group_table.items() if is_valid_group(name)}
        for name in [name for name in config.entries if name not in wanted]:
            groups.remove(name)
        for name, one in wanted.items():
            if name not in config.entries or groups.find_or_create(name) != one:
                groups.put(one._replace(group_name=name))
        config.mark_changed()
        config.document["dataVersion"] = to_json(master_groups.data_version)
        # Last, so that an interrupted copy is repeated.
        self._groups_version = master_groups.data_version

    def replace_consumer_offsets(self, master_offsets: ConsumerOffsetTable) -> None:
        """Store the master's consumer offsets."""
        offsets = self._broker.store.config.consumer_offsets
        for key, queues in master_offsets.offset_table.items():
            topic, group = split_offset_key(key)
            known = offsets.entries.get(key, {})
            for queue_id, offset in queues.items():
                if known.get(queue_id) != offset:
                    offsets.commit(topic, group, queue_id, offset)

    def replace_delay_offsets(self, master_offsets: DelayOffsetTable) -> None:
        """Store the progress of the master's delay levels."""
        offsets = self._broker.store.config.delay_offsets
        for level, offset in master_offsets.offset_table.items():
            if offsets.entries.get(level) != offset:
                offsets.set(level, offset)
