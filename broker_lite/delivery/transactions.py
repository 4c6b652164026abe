"""Transactions: a half message that no consumer sees, and a decision about it.

A half message stands in RMQ_SYS_TRANS_HALF_TOPIC. A commit stores the message under its real topic, with the half's
place in it; commit and rollback both leave a mark in RMQ_SYS_TRANS_OP_HALF_TOPIC, so a half with a mark and without a
commit was rolled back, and one without a mark is pending. The progress of both topics is that of the group
CID_RMQ_SYS_TRANS: every half before it is decided. Source: TransactionalMessageServiceImpl, EndTransactionProcessor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

from commitlake.broker_lite.delivery import rewrites
from commitlake.broker_lite.delivery.errors import TransactionError
from commitlake.broker_lite.delivery.own_queues import numbers_from, whole_message, whole_messages
from commitlake.broker_lite.delivery.targets import TargetError, real_place
from commitlake.broker_lite.stores.engine.errors import MessageRefusedError
from commitlake.broker_lite.stores.rocketmq import MessageStore, PutResult
from commitlake.schemas.layouts.numbers import parse_int
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC
from commitlake.schemas.layouts.rocketmq.transactions import TRANSACTION_GROUP, finished_offsets

QUEUE_ID = 0
IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
_MAX_NUMBER = 10**9 - 1
_logger = logging.getLogger(__name__)


class Transactions:
    """The half messages of a store; several threads may use it."""

    def __init__(self, store: MessageStore) -> None:
        """Read the marks that come after the progress."""
        self._store = store
        self._guard = threading.Lock()
        self._half_progress = self._progress(HALF_TOPIC)
        self._op_progress = self._progress(OP_TOPIC)
        self._decided: set[int] = set()
        self._marks: dict[int, list[int]] = {}
        self._newest: dict[int, int] = {}
        self._older: dict[int, list[int]] = {}
        for number, mark in whole_messages(store, OP_TOPIC, QUEUE_ID, self._op_progress):
            self._note(number, finished_offsets(mark.body) if mark else [])

    def _progress(self, topic: str) -> int:
        progress = self._store.config.consumer_offsets.get(topic, TRANSACTION_GROUP, QUEUE_ID) or 0
        return min(max(progress, self._store.min_offset(topic, QUEUE_ID)), self._store.max_offset(topic, QUEUE_ID))

    def _undecided(self, number: int) -> Message | None:
        """Return a half message that waits for a decision, by its number; one that is damaged is passed over.

        Its place in the queue counts, and not what a forged record says of it.
        """
        if self._is_decided(number):
            return None
        half = whole_message(self._store, HALF_TOPIC, QUEUE_ID, number)
        if half is None:
            self._pass_over(number)
            return None
        return half if half.queue_offset == number else replace(half, queue_offset=number)

    def _numbers(self) -> range:
        """The half messages that are there now, from the first that is undecided on."""
        numbers = numbers_from(self._store, HALF_TOPIC, QUEUE_ID, self._half_progress)
        for expired in range(self._half_progress, numbers.start):
            if not self._is_decided(expired):
                self._pass_over(expired)
        return numbers

    def prepare(self, message: NewMessage) -> PutResult:
        """Store a half message.

        Raises:
            TransactionError: if it is to be delayed too, or its producer is not named.
        """
        known = dict(message.properties)
        if props.DELAY in known:
            raise TransactionError(f"a half message: expected no {props.DELAY}, found {known[props.DELAY]}")
        if props.PGROUP not in known:
            raise TransactionError(f"a half message: expected {props.PGROUP}, found none")
        return self._store.put(rewrites.prepare(message))

    def commit(self, producer_group: str, half_offset: int) -> PutResult:
        """Let consumers see the message of a half.

        Args:
            producer_group: who sent it.
            half_offset: physical offset of the half.

        Returns:
            Where the message was stored.

        Raises:
            TransactionError: if there is no such half of this producer's, or it was decided before.
        """
        with self._guard:
            half = self._find(producer_group, half_offset)
            result = self._store.put(rewrites.commit(half, *self._place_of(half)))
            self._finish(half)
        return result

    def rollback(self, producer_group: str, half_offset: int) -> None:
        """Drop a half; see `commit`."""
        with self._guard:
            self._finish(self._find(producer_group, half_offset))

    def pending(self) -> list[Message]:
        """The halves that nobody has decided, the oldest first."""
        with self._guard:
            return [half for number in self._numbers() if (half := self._undecided(number))]

    def take_due(self, now_ms: int, timeout_ms: int, checks_max: int) -> Iterator[Message | None]:
        """The halves whose producers are to be asked now, as far as they are taken from here.

        Each of them was stored again with its check counted, and the older record of it counts no more; those that were
        asked about too often are given up.

        Args:
            now_ms: when this is.
            timeout_ms: the age at which a half is asked about first, unless it says so itself.
            checks_max: how often a producer is asked.

        Yields:
            A half to ask about, or None where one was looked at and nobody is to be asked.
        """
        with self._guard:
            numbers = self._numbers()
        for number in numbers:
            with self._guard:
                half = self._undecided(number)
                if half is not None and _is_too_young(half, now_ms, timeout_ms):
                    return
                due = None if half is None else self._next_check(half, now_ms, timeout_ms, checks_max)
            yield due

    def _next_check(self, half: Message, now_ms: int, timeout_ms: int, checks_max: int) -> Message | None:
        """Count a check of a half; gives what its producer is to be asked about, if it is."""
        checks = _number(half.properties.get(rewrites.CHECK_TIMES)) or 0
        try:
            if checks >= checks_max:
                self._store.put(rewrites.abandon(half))
                self._pass_over(half.queue_offset)
                return None
            again = self._put_again(half, checks + 1)
        except MessageRefusedError as error:
            # Its properties are full, say. Those behind it must not wait for it.
            _logger.error("half message %d is left out, it cannot be stored again: %s", half.queue_offset, error)
            self._pass_over(half.queue_offset)
            return None
        immunity_ms = _immunity_ms(half, timeout_ms)
        # RocketMQ counts this, too.
        is_immune = immunity_ms is not None and now_ms - half.born_timestamp < immunity_ms
        return None if is_immune else again

    def _put_again(self, half: Message, checks: int) -> Message:
        """Let a newer record stand for a half; whoever names the older one means this."""
        result = self._store.put(rewrites.check_again(half, checks))
        older = [*self._older.pop(half.queue_offset, ()), half.queue_offset]
        self._older[result.queue_offset] = older
        self._newest.update(dict.fromkeys(older, result.queue_offset))
        self._pass_over(half.queue_offset)
        again = self._store.get_at(result.physical_offset)
        assert again is not None, "what was just stored is there"
        return again

    def _is_decided(self, number: int) -> bool:
        return number < self._half_progress or number in self._decided

    def _find(self, producer_group: str, half_offset: int) -> Message:
        half = self._store.get_at(half_offset)
        if half is None or half.topic != HALF_TOPIC:
            raise TransactionError(f"expected a half message at {half_offset}, found {half.topic if half else 'none'}")
        if (owner := half.properties.get(props.PGROUP)) != producer_group:
            raise TransactionError(
                f"the half at {half_offset}: expected {props.PGROUP} {owner}, found {producer_group}"
            )
        entry = self._store.entry_at(HALF_TOPIC, QUEUE_ID, half.queue_offset)
        if entry is None or entry.physical_offset != half_offset:
            raise TransactionError(
                f"the half at {half_offset}: expected it to be number {half.queue_offset} of its queue"
            )
        if (newest := self._newest.get(half.queue_offset)) is not None:
            again = whole_message(self._store, HALF_TOPIC, QUEUE_ID, newest)
            if again is None:
                raise TransactionError(f"the half at {half_offset}: expected its record {newest} whole, found damage")
            half = again
        if self._is_decided(half.queue_offset):
            raise TransactionError(f"the half at {half_offset}: expected it pending, found it decided")
        return half

    def _place_of(self, half: Message) -> tuple[str, int]:
        try:
            return real_place(self._store, half.properties)
        except TargetError as error:
            raise TransactionError(f"the half at {half.physical_offset}: {error}") from error

    def _finish(self, half: Message) -> None:
        mark = rewrites.finish(half, self._store.clock(), self._store.options.store_host)
        result = self._store.put(mark)
        self._note(result.queue_offset, [half.queue_offset])

    def _note(self, mark: int, halves: list[int]) -> None:
        self._marks[mark] = halves
        self._decided.update(half for half in halves if half >= self._half_progress)
        for half in halves:
            self._forget_older(half)
        self._advance()

    def _pass_over(self, half: int) -> None:
        """Let a half count as decided, without a mark: it stands in the log once more, or was given up."""
        self._decided.add(half)
        self._forget_older(half)
        self._advance()

    def _forget_older(self, half: int) -> None:
        for older in self._older.pop(half, ()):
            del self._newest[older]

    def _advance(self) -> None:
        while self._half_progress in self._decided:
            self._decided.discard(self._half_progress)
            self._half_progress += 1
        while all(half < self._half_progress for half in self._marks.get(self._op_progress, [self._half_progress])):
            del self._marks[self._op_progress]
            self._op_progress += 1
        offsets = self._store.config.consumer_offsets
        offsets.commit(HALF_TOPIC, TRANSACTION_GROUP, QUEUE_ID, self._half_progress)
        offsets.commit(OP_TOPIC, TRANSACTION_GROUP, QUEUE_ID, self._op_progress)


def _is_too_young(half: Message, now_ms: int, timeout_ms: int) -> bool:
    """Whether a half, and so all behind it, is not to be asked about yet; one from the future is."""
    return not half.properties.get(IMMUNITY_SECONDS) and 0 <= now_ms - half.born_timestamp < timeout_ms


def _immunity_ms(half: Message, timeout_ms: int) -> int | None:
    """The age before which nobody is to be asked about a half that says one itself; what is no number is the usual."""
    text = half.properties.get(IMMUNITY_SECONDS)
    if not text:
        return None
    seconds = _number(text)
    return timeout_ms if seconds is None else seconds * 1000


def _number(text: str | None) -> int | None:
    return parse_int(text, 0, _MAX_NUMBER)
