"""Transactions: half messages that consumers do not see, and decisions about them.

A half message is stored in RMQ_SYS_TRANS_HALF_TOPIC. A commit stores the message under its real topic, with the
physical offset of the half message. Commit and rollback both store an outcome record, called a mark, in
RMQ_SYS_TRANS_OP_HALF_TOPIC: a half message with a mark and without a commit was rolled back, and one without a mark is
pending. The progress in both topics is the offset of the group CID_RMQ_SYS_TRANS: all half messages before it are
decided. Source: TransactionalMessageServiceImpl, EndTransactionProcessor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

from commitlake.broker_lite.delivery import message_rewrites
from commitlake.broker_lite.delivery.internal_queues import (
    TargetError,
    parse_delivery_target,
    read_intact_message,
    read_intact_messages,
    remaining_queue_offsets,
)
from commitlake.broker_lite.errors import MessageRefusedError, TransactionError
from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.topics import (
    CHECK_TIMES,
    HALF_TOPIC,
    OP_TOPIC,
    TRANSACTION_GROUP,
    parse_op_offsets,
)

QUEUE_ID = 0
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_MAX_NUMBER = 10**9 - 1
_logger = logging.getLogger(__name__)


class Transactions:
    """Transactions of a store: half messages that wait for commit or rollback; several threads may use it."""

    def __init__(self, store: MessageStore) -> None:
        """Read which half messages were committed or rolled back after the progress that the store has saved."""
        self._store = store
        self._guard = threading.Lock()
        self._half_progress = self._read_stored_progress(HALF_TOPIC)
        self._op_progress = self._read_stored_progress(OP_TOPIC)
        self._decided: set[int] = set()
        self._marks: dict[int, list[int]] = {}
        self._newest: dict[int, int] = {}
        self._older: dict[int, list[int]] = {}
        for number, mark in read_intact_messages(store, OP_TOPIC, QUEUE_ID, self._op_progress):
            self._add_decided_halves(number, parse_op_offsets(mark.body) if mark else [])

    def _read_stored_progress(self, topic: str) -> int:
        progress = self._store.config.consumer_offsets.get(topic, TRANSACTION_GROUP, QUEUE_ID) or 0
        return min(max(progress, self._store.min_offset(topic, QUEUE_ID)), self._store.max_offset(topic, QUEUE_ID))

    def _read_undecided_half(self, queue_offset: int) -> Message | None:
        """Return the half message at a queue offset if it is undecided and intact, else None.

        The offset in the queue counts, not the one in the record, which may be forged.
        """
        if self._is_decided(queue_offset):
            return None
        half = read_intact_message(self._store, HALF_TOPIC, QUEUE_ID, queue_offset)
        if half is None:
            self._mark_half_decided(queue_offset)
            return None
        return half if half.queue_offset == queue_offset else replace(half, queue_offset=queue_offset)

    def _half_queue_offsets(self) -> range:
        """Return the range of queue offsets that contains all undecided half messages."""
        numbers = remaining_queue_offsets(self._store, HALF_TOPIC, QUEUE_ID, self._half_progress)
        for expired in range(self._half_progress, numbers.start):
            if not self._is_decided(expired):
                self._mark_half_decided(expired)
        return numbers

    def store_half_message(self, message: NewMessage) -> PutResult:
        """Store a half message.

        Raises:
            TransactionError: if the message is delayed, or has no producer group.
        """
        known = dict(message.properties)
        if props.DELAY in known:
            raise TransactionError(
                f"half message: expected a message without the property {props.DELAY}, found one with "
                f"{known[props.DELAY]}"
            )
        if props.PGROUP not in known:
            raise TransactionError(f"half message: the property {props.PGROUP}, the producer group, is missing")
        return self._store.put(message_rewrites.to_half_message(message))

    def commit(self, producer_group: str, half_offset: int) -> PutResult:
        """Commit a half message: store its message for consumers.

        Args:
            producer_group: group of the producer that sent it.
            half_offset: physical offset of the half message.

        Returns:
            Position of the message for consumers.

        Raises:
            TransactionError: if the half message does not exist, belongs to another group, or is already decided.
        """
        with self._guard:
            half = self._find_undecided_half(producer_group, half_offset)
            # The message before the op record: if the broker is killed in between, the half message is still undecided,
            # and its producer is asked again.
            result = self._store.put(message_rewrites.to_committed_message(half, *self._parse_target(half)))
            self._store_op_record(half)
        return result

    def rollback(self, producer_group: str, half_offset: int) -> None:
        """Roll back a half message, so that consumers never see its message."""
        with self._guard:
            self._store_op_record(self._find_undecided_half(producer_group, half_offset))

    def pending_half_messages(self) -> list[Message]:
        """Return the half messages that are neither committed nor rolled back, oldest first."""
        with self._guard:
            return [half for number in self._half_queue_offsets() if (half := self._read_undecided_half(number))]

    def take_due_half_messages(self, now_ms: int, timeout_ms: int, max_checks: int) -> Iterator[Message | None]:
        """Yield each undecided half message whose producer must be asked now; for other examined messages, yield None.

        Each yielded half message is a new record with its check count increased; the older record no longer counts. A
        half message that was checked too often is discarded.

        Args:
            now_ms: current time.
            timeout_ms: age at which a half message is first checked, unless its properties set another one.
            max_checks: maximum number of checks.

        Yields:
            A half message to ask about, or None for each one that was examined and needs no question.
        """
        with self._guard:
            numbers = self._half_queue_offsets()
        # The lock is held for one half message at a time, so that a long check does not hold up commits.
        for number in numbers:
            with self._guard:
                half = self._read_undecided_half(number)
                if half is not None and _is_too_young(half, now_ms, timeout_ms):
                    return
                due = None if half is None else self._store_next_check(half, now_ms, timeout_ms, max_checks)
            yield due

    def _store_next_check(self, half_message: Message, now_ms: int, timeout_ms: int, max_checks: int) -> Message | None:
        """Store a half message again with one more check counted; return it if its producer must be asked."""
        checks = _parse_number(half_message.properties.get(CHECK_TIMES)) or 0
        try:
            if checks >= max_checks:
                self._store.put(message_rewrites.to_abandoned_half(half_message))
                self._mark_half_decided(half_message.queue_offset)
                return None
            again = self._replace_half(half_message, checks + 1)
        except MessageRefusedError as error:
            # Its properties may be full, for example. Skip it, so that later half messages are checked.
            _logger.error(
                "half message %d is skipped, because it cannot be stored again: %s", half_message.queue_offset, error
            )
            self._mark_half_decided(half_message.queue_offset)
            return None
        immunity_ms = _immunity_ms(half_message, timeout_ms)
        # RocketMQ counts this check, too.
        is_immune = immunity_ms is not None and now_ms - half_message.born_timestamp < immunity_ms
        return None if is_immune else again

    def _replace_half(self, half_message: Message, check_count: int) -> Message:
        """Replace a half message by a newer record, which commits and rollbacks that name the old record find, too."""
        # The new record first. If the broker is killed before the old one counts as decided, both are pending, and none
        # is lost.
        result = self._store.put(message_rewrites.to_checked_half(half_message, check_count))
        older = [*self._older.pop(half_message.queue_offset, ()), half_message.queue_offset]
        self._older[result.queue_offset] = older
        self._newest.update(dict.fromkeys(older, result.queue_offset))
        self._mark_half_decided(half_message.queue_offset)
        again = self._store.get_at(result.physical_offset)
        assert again is not None, "expected the record that was just stored"
        return again

    def _is_decided(self, queue_offset: int) -> bool:
        return queue_offset < self._half_progress or queue_offset in self._decided

    def _find_undecided_half(self, producer_group: str, half_offset: int) -> Message:
        half = self._store.get_at(half_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise TransactionError(
                f"expected a half message at physical offset {half_offset}, found {half.topic if half else 'none'}"
            )
        if (owner := half.properties.get(props.PGROUP)) != producer_group:
            raise TransactionError(
                f"the half message at physical offset {half_offset} belongs to the producer group {owner}, found "
                f"{producer_group}"
            )
        entry = self._store.entry_at(HALF_TOPIC, QUEUE_ID, half.queue_offset)
        # The queue offset in a record may be forged, and would decide about another half message.
        if entry is None or entry.physical_offset != half_offset:
            raise TransactionError(
                f"the half message at physical offset {half_offset}: expected that entry {half.queue_offset} of its "
                "queue points to it, found "
                f"{'no entry' if entry is None else f'one that points to {entry.physical_offset}'}"
            )
        if (newest := self._newest.get(half.queue_offset)) is not None:
            again = read_intact_message(self._store, HALF_TOPIC, QUEUE_ID, newest)
            if again is None:
                raise TransactionError(
                    f"the half message at physical offset {half_offset}: its newest record, at queue offset {newest}, "
                    "is damaged"
                )
            half = again
        if self._is_decided(half.queue_offset):
            raise TransactionError(
                f"the half message at physical offset {half_offset} is no longer undecided: it was committed, rolled "
                "back or discarded before"
            )
        return half

    def _parse_target(self, half_message: Message) -> tuple[str, int]:
        try:
            return parse_delivery_target(self._store, half_message.properties)
        except TargetError as error:
            raise TransactionError(
                f"the half message at physical offset {half_message.physical_offset}: {error}"
            ) from error

    def _store_op_record(self, half_message: Message) -> None:
        mark = message_rewrites.to_op_record(half_message, self._store.clock(), self._store.options.store_host)
        result = self._store.put(mark)
        self._add_decided_halves(result.queue_offset, [half_message.queue_offset])

    def _add_decided_halves(self, op_queue_offset: int, half_queue_offsets: list[int]) -> None:
        self._marks[op_queue_offset] = half_queue_offsets
        self._decided.update(half for half in half_queue_offsets if half >= self._half_progress)
        for half in half_queue_offsets:
            self._forget_older_records(half)
        self._advance_progress()

    def _mark_half_decided(self, half_queue_offset: int) -> None:
        """Mark a half message that was replaced, discarded or skipped as one that needs no decision any more."""
        self._decided.add(half_queue_offset)
        self._forget_older_records(half_queue_offset)
        self._advance_progress()

    def _forget_older_records(self, half_queue_offset: int) -> None:
        for older in self._older.pop(half_queue_offset, ()):
            del self._newest[older]

    def _advance_progress(self) -> None:
        while self._half_progress in self._decided:
            self._decided.discard(self._half_progress)
            self._half_progress += 1
        # An op record may be passed over once all half messages in it are.
        while all(half < self._half_progress for half in self._marks.get(self._op_progress, [self._half_progress])):
            del self._marks[self._op_progress]
            self._op_progress += 1
        offsets = self._store.config.consumer_offsets
        offsets.commit(HALF_TOPIC, TRANSACTION_GROUP, QUEUE_ID, self._half_progress)
        offsets.commit(OP_TOPIC, TRANSACTION_GROUP, QUEUE_ID, self._op_progress)


def _is_too_young(half_message: Message, now_ms: int, timeout_ms: int) -> bool:
    """Return whether it is too early to ask the producer of a half message; if so, it is too early for all later ones.

    One whose born time is after `now_ms` is not too young.
    """
    return not half_message.properties.get(IMMUNITY_SECONDS) and 0 <= now_ms - half_message.born_timestamp < timeout_ms


def _immunity_ms(half_message: Message, timeout_ms: int) -> int | None:
    """Return the age from which a half message's producer is asked, ms; None if the message does not set it."""
    text = half_message.properties.get(IMMUNITY_SECONDS)
    if not text:
        return None
    seconds = _parse_number(text)
    return timeout_ms if seconds is None else seconds * 1000


def _parse_number(text: str | None) -> int | None:
    return parse_int(text, 0, _MAX_NUMBER)
