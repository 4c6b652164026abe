"""All queues of a store: ConsumeQueues, BatchConsumeQueues, and light queues, which are separate ConsumeQueues.

All queues of a topic have one type, `queue.type` in topics.json. For a topic that is not there, the folder of its
queues determines the type, and without a folder the offsets of its records (see `batch_topics`). A broker does not
start on a store with queues of the wrong type ("should be SimpleCQ, but is BatchCQ"), so such queues are never written.
Source: ConsumeQueueStore (5.5.0).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.log_writer import QueueGapError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.topic_names import is_broker_topic, is_valid_topic
from commitlake.broker_lite.stores.rocketmq import batch_queue, config_files, consume_queue
from commitlake.broker_lite.stores.rocketmq.batch_queue import BatchConsumeQueue, BatchConsumeQueues, BatchTopics
from commitlake.broker_lite.stores.rocketmq.commitlog import CommitLog
from commitlake.broker_lite.stores.rocketmq.config_files import MAX_QUEUES, Topics
from commitlake.broker_lite.stores.rocketmq.consume_queue import ConsumeQueue, ConsumeQueues
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch
from commitlake.broker_lite.stores.rocketmq.options import StoreOptions
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import BATCH_QUEUE_TYPE, SIMPLE_QUEUE_TYPE
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_QUEUE_ID, MAX_LIGHT_QUEUES, is_valid_folder_name
from commitlake.schemas.layouts.rocketmq.topics import LIGHT_PREFIX, OFFSETS_FILES

AnyQueue = ConsumeQueue | BatchConsumeQueue
_logger = logging.getLogger(__name__)


class StoreQueues:
    """All queues of a store, ConsumeQueues and BatchConsumeQueues, by topic and queue id.

    Attributes:
        refused_topics: invalid topic names that were found in records.
        has_light_queues: True if light queues are enabled: the store has one, or a broker with `enableLmq` wrote its
            offsets.
    """

    def __init__(self, root: Path, options: StoreOptions, mappings: MappedFiles, topics: Topics) -> None:
        """Open the queues of the store at `root`.

        Raises:
            StoreFilesError: if files do not have the sizes of the options, one is missing, or a topic has queues of a
            type that contradicts topics.json.
        """
        self._root = root
        self._topics = topics
        self._simple = ConsumeQueues(root, options.consume_queue_file_size_bytes, mappings)
        self._batch = BatchConsumeQueues(root, options.batch_queue_file_size_bytes, mappings)
        self.refused_topics: set[str] = set()
        self._check_queue_types()
        self._simple_topics = {queue.topic for queue in self._simple if not queue.files.is_empty}
        self._unknown = BatchTopics()
        self._light = {topic for topic in self._simple.topics if topic.startswith(LIGHT_PREFIX)}
        self.has_light_queues = bool(self._light) or (root / config_files.FOLDER / OFFSETS_FILES[1]).exists()
        self._creates_light_again = self.has_light_queues or not any(True for _ in self)
        self._has_warned_of_light = False

    def _check_queue_types(self) -> None:
        for queue in self._batch:
            if queue.topic not in self._topics.entries:
                self._topics.create_batch_topic(queue.topic, min(queue.queue_id + 1, MAX_QUEUES))
        for table, folder, are_batch in (
            (self._simple, consume_queue.FOLDER, False),
            (self._batch, batch_queue.FOLDER, True),
        ):
            for topic in sorted(table.topics):
                if self._topics.is_batch(topic) != are_batch:
                    # A folder without entries shows nothing, but RocketMQ would take it for a queue of the wrong type.
                    table.delete_empty_queues(topic)
                    self._check_queue_type(topic, table.topics, folder)

    def _check_queue_type(self, topic: str, topics_of_folder: set[str], folder: str) -> None:
        if topic in topics_of_folder:
            expected = BATCH_QUEUE_TYPE if self._topics.is_batch(topic) else SIMPLE_QUEUE_TYPE
            raise StoreFilesError(
                f"{self._root / folder / topic}: the topic has queues in this folder, although its queue.type is "
                f"{expected}; RocketMQ's broker does not start on such a store. Correct queue.type in "
                "config/topics.json, or rebuild the queues with 'commitlake rebuild STORE --in-place'"
            )

    def __iter__(self) -> Iterator[AnyQueue]:
        """Yield all queues; other threads may add queues meanwhile."""
        yield from self._simple
        yield from self._batch

    def find(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Return the queue with a topic and queue id, or None."""
        return self._simple.find(topic, queue_id) or self._batch.find(topic, queue_id)

    def find_or_create(self, topic: str, queue_id: int) -> AnyQueue:
        """Return the queue, created with the topic's type if necessary; its folder is created with its first entry."""
        return self._simple.find(topic, queue_id) or self._find_or_create_regular(topic, queue_id)

    def _find_or_create_regular(self, topic: str, queue_id: int) -> AnyQueue:
        return (self._batch if self._topics.is_batch(topic) else self._simple).find_or_create(topic, queue_id)

    def find_light_queue(self, name: str) -> ConsumeQueue | None:
        """Return the light queue (LMQ, RocketMQ's light message queue) with a name, or None."""
        return self._simple.find(name, LIGHT_QUEUE_ID)

    def find_or_create_light_queue(self, name: str) -> ConsumeQueue:
        """Return a light queue (LMQ), created if necessary; the caller checks `can_add_light_queues` before."""
        self.has_light_queues = self._creates_light_again = True
        self._light.add(name)
        return self._simple.find_or_create(name, LIGHT_QUEUE_ID)

    def can_add_light_queues(self, names: Iterable[str]) -> bool:
        """Return whether light queues (LMQ) with these names exist, or can be created within the limit."""
        return len(self._light) + sum(name not in self._light for name in names) <= MAX_LIGHT_QUEUES

    def enable_light_queues_of_records(self) -> None:
        """Allow log records to create the light queues (LMQ) that they name, because the master has accepted them."""
        self._creates_light_again = True

    @property
    def last_record(self) -> int:
        """Physical offset of the last record that has an entry in a queue, -1 if there is none."""
        return max((queue.last_record for queue in self), default=-1)

    def dispatch_recovered(self, dispatch: Dispatch, *, reads_whole_log: bool) -> None:
        """Append a record that recovery has read from the log to its queues, unless they already have it.

        A log may come from an untrusted source, and its topics become folders: a record with an invalid topic name gets
        no entry, and the name is added to `refused_topics`.

        Raises:
            QueueGapError: if a queue ends before the record (see `ConsumeQueue.append_again`).
        """
        if not dispatch.is_queued:
            return
        if not is_valid_topic(dispatch.topic) or dispatch.queue_id < 0:
            self._log_refused_topic(dispatch)
            return
        # Only the following records can show the type, so the entry goes to a ConsumeQueue for now.
        if not self._is_queue_type_known(dispatch.topic):
            self._unknown.add_record(dispatch)
        self.find_or_create(dispatch.topic, dispatch.queue_id).append_recovered(
            dispatch, reads_whole_log=reads_whole_log
        )
        for name, number in dispatch.light_queues:
            light = self.find_light_queue(name) or self._recreate_light_queue(name)
            if light is not None:
                entry = dispatch._replace(topic=name, queue_id=LIGHT_QUEUE_ID, queue_offset=number)
                light.append_recovered(entry, reads_whole_log=reads_whole_log)

    def _recreate_light_queue(self, name: str) -> ConsumeQueue | None:
        """Return a new light queue (LMQ) that a record of the log names; None if it must not be created.

        Clients can name any number of queues. So a store without light queues gets none, like that of a RocketMQ broker
        without `enableLmq`. If all queues are missing, only the log can show that the store had some.
        """
        if not self._creates_light_again or not is_valid_folder_name(name):
            return None
        if not self.can_add_light_queues((name,)):
            if not self._has_warned_of_light:
                _logger.warning("records name more than %d light queues; the others are not created", MAX_LIGHT_QUEUES)
                self._has_warned_of_light = True
            return None
        return self.find_or_create_light_queue(name)

    def _is_queue_type_known(self, topic: str) -> bool:
        """Return whether it is known if a topic has BatchConsumeQueues: from topics.json, its folders, or its name."""
        return (
            topic in self._topics.entries
            or topic in self._simple_topics
            or is_broker_topic(topic)
            or topic.startswith(LIGHT_PREFIX)
        )

    def create_batch_topic_if_needed(self, record: Dispatch) -> None:
        """Create a topic with BatchConsumeQueues if a record has an inner batch and the topic is not known yet.

        The slave's master has accepted the record, and its settings follow within seconds. In a log that is read from
        disk, the following records decide instead, see `decide_queue_types`.
        """
        if record.is_inner_batch and not self._is_queue_type_known(record.topic) and is_valid_topic(record.topic):
            self._topics.create_batch_topic(record.topic, min(record.queue_id + 1, MAX_QUEUES))

    def reset_type_evidence(self) -> None:
        """Forget what the log has shown about the types of queues, because it is read from the start again."""
        self._unknown = BatchTopics()

    def decide_queue_types(self) -> None:
        """Decide, after the log was read, which topics without known settings have BatchConsumeQueues.

        Raises:
            QueueGapError: if a topic that has BatchConsumeQueues was entered into ConsumeQueues.
        """
        wrong = []
        for topic, (is_batch, queues) in self._unknown.detect_queue_types().items():
            if is_batch:
                self._topics.create_batch_topic(topic, min(queues, MAX_QUEUES))
                wrong.append(topic)
            else:
                self._simple_topics.add(topic)
        # Their entries are in ConsumeQueues now. The error makes recovery build all queues again.
        if wrong:
            raise QueueGapError(
                f"the topics {', '.join(wrong)} have ConsumeQueues, but the log has messages of BatchConsumeQueues for "
                "them"
            )

    def _log_refused_topic(self, record: Dispatch) -> None:
        if record.topic not in self.refused_topics:
            _logger.warning("messages of %r/%d get no queue: invalid topic name", record.topic[:100], record.queue_id)
            self.refused_topics.add(record.topic)

    def drop_invalid_tails(self, log: CommitLog) -> None:
        """Remove entries at the end of every queue that point to no valid record, as a crash may leave such entries."""
        for queue in self:
            queue.drop_invalid_tail(log)

    def truncate_to_log_offset(self, physical_offset: int) -> None:
        """Remove the entries of records at or after an offset of the log from all queues."""
        for queue in self:
            # Most queues end before that, and need not be searched.
            if queue.max_physical_offset > physical_offset:
                queue.truncate_to_log_offset(physical_offset)

    def delete_expired(self, log_offset: int) -> None:
        """In all queues, delete the files whose entries all point before an offset of the log."""
        self._simple.delete_expired(log_offset)
        self._batch.delete_expired(log_offset)

    def sync(self) -> None:
        """Flush the entries of all queues to disk."""
        self._simple.sync()
        self._batch.sync()

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic."""
        self._light.discard(topic)
        self._simple.delete_topic(topic)
        self._batch.delete_topic(topic)

    def delete_all(self) -> None:
        """Delete all queues, so that they can be rebuilt."""
        self._light.clear()
        self._simple.delete_all()
        self._batch.delete_all()
