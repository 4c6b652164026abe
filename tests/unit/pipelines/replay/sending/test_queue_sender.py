"""Sending of a batch when the target fails: no message is lost or stored twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from commitlake.connectors.rocketmq.errors import ProtocolError, RefusedError, RocketMQError, UnreachableError
from commitlake.connectors.rocketmq.puller import PullResult, PullStatus
from commitlake.pipelines.replay.errors import ReplayError, StoppedError
from commitlake.pipelines.replay.sending.batches import Batch, encode_part
from commitlake.pipelines.replay.sending.queue_sender import QueueSender, SendResult, TargetClient
from commitlake.pipelines.replay.sent_messages import Origin, find_sent_messages
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.properties import parse_properties
from commitlake.schemas.remoting.batch import parse_batch
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue
from tests.support.exit_codes import exits
from tests.support.replays import rows_of

QUEUE = MessageQueue("orders", "broker-a", 0)
Fault = Callable[["Target", bytes], int]


class Target:
    """A queue that fails as a test wants it; a real broker cannot be made to fail at a given send."""

    def __init__(self, *faults: Fault | RocketMQError) -> None:
        self.log: list[dict[str, str]] = [{}] * 5  # other producers' messages
        self.bodies: list[bytes] = [b""] * 5
        self.faults = list(faults)
        self.sends = 0
        self.alone = 0
        self.undispatched = 0
        self.late: list[bytes] = []
        self.peer = self

    def open(self, _: str) -> Target:
        """Return the connection to the broker, which is the target itself."""
        return self

    def wait_for_earlier_connections(self, _: str, connection: object) -> None:
        """Store what is late, one batch at each request."""
        assert connection is self
        if self.late:
            self.store(self.late.pop(0))
            raise UnreachableError("the connection is still open")

    def store(self, body: bytes, count: int | None = None) -> int:
        """Store the first messages of a batch; the offset of the first."""
        first = len(self.log)
        for item in parse_batch(body)[:count]:
            self.log.append(dict(parse_properties(item.properties)))
            self.bodies.append(item.body)
        return first

    def send_encoded_batch(self, queue: MessageQueue, body: bytes, sys_flag: int, connection: object) -> int:
        """Fail as wanted, or store."""
        assert connection is self
        assert (queue, sys_flag) == (QUEUE, 0)
        self.sends += 1
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, RocketMQError):
                raise fault
            return fault(self, body)
        return self.store(body)

    def send_encoded_single(self, queue: MessageQueue, body: bytes, sys_flag: int, connection: object) -> int:
        """Fail as wanted, or store."""
        self.alone += 1
        return self.send_encoded_batch(queue, body, sys_flag, connection)

    def max_offset(self, _: MessageQueue) -> int:
        """Return the end of the queue."""
        return len(self.log) - self.undispatched

    def pull(self, _: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        """Return some messages."""
        end = min(offset + max_messages, self.max_offset(QUEUE))
        found = [
            cast("Message", SimpleNamespace(properties=self.log[number], queue_offset=number))
            for number in range(offset, end)
        ]
        return PullResult(PullStatus.FOUND, end, 0, len(self.log), found)

    def runtime_info(self, _: str) -> dict[str, str]:
        """Return the lag of the queues after the log; each request reduces it."""
        left, self.undispatched = self.undispatched, max(0, self.undispatched - 1)
        return {
            "commitLogMinOffset": "0",
            "commitLogMaxOffset": str(len(self.log)),
            "dispatchBehindBytes": str(left),
        }


def make_batch(count: int = 4) -> Batch:
    bodies = pa.array([bytes([65 + number]) for number in range(count)], pa.large_binary())
    part = encode_part(rows_of([{}] * count), bodies, "R1")
    (batch,) = part.iterate_batches(np.arange(count), 10**6, 1000)
    return batch


def send(
    target: Target, batch: Batch, patience: float = 60, end: int = 5, is_stopped: Callable[[], bool] = lambda: False
) -> list[SendResult]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    it = cast("Any", target)
    sender = QueueSender(
        TargetClient(it, it, it, ""), it, QUEUE, end, "R1", patience, is_stopped=is_stopped, sleep=sleep,
        clock=lambda: now[0],
    )  # fmt: skip
    return list(sender.send(batch, lambda row: Origin("broker-a", 100 * row)))


def landed(landings: list[SendResult]) -> dict[int, tuple[str, int | None]]:
    return dict(sorted(_each(landings)))


def _each(landings: list[SendResult]) -> Iterator[tuple[int, tuple[str, int | None]]]:
    for landing in landings:
        for number, row in enumerate(landing.rows.tolist()):
            offset = None if landing.queue_offsets is None else int(landing.queue_offsets[number])
            yield row, (str(landing.outcome), offset)


def lost_answer(target: Target, body: bytes) -> int:
    target.store(body)
    raise UnreachableError("the connection broke")


def cut_write(target: Target, body: bytes) -> int:
    target.store(body, 2)
    raise UnreachableError("the broker was killed")


def late_queue(target: Target, body: bytes) -> int:
    target.undispatched = len(parse_batch(body))
    return lost_answer(target, body)


def late_batch(target: Target, body: bytes) -> int:
    target.late = [body]
    raise UnreachableError("no answer in time")


def test_an_answer_gives_the_offsets_of_the_messages() -> None:
    target = Target()
    assert landed(send(target, make_batch())) == {row: ("sent", 5 + row) for row in range(4)}
    assert target.sends == 1


@pytest.mark.parametrize("fault", [lost_answer, late_queue, late_batch])
def test_messages_with_a_lost_answer_are_found_and_not_sent_again(fault: Fault) -> None:
    target = Target(fault)
    assert landed(send(target, make_batch())) == {row: ("found", 5 + row) for row in range(4)}
    assert (target.sends, len(target.log)) == (1, 9)


@pytest.mark.parametrize("offset", [-(2**63), -1, 4, 2**63 - 1])
def test_an_impossible_offset_in_an_answer_is_not_used(offset: int) -> None:
    def lie(target: Target, body: bytes) -> int:
        target.store(body)
        return offset

    target = Target(lie)
    assert landed(send(target, make_batch())) == {row: ("found", 5 + row) for row in range(4)}
    assert target.sends == 1


def test_messages_reported_as_stored_but_not_found_are_not_sent_again() -> None:
    def hide(target: Target, _: bytes) -> int:
        target.faults.append(hide)
        return -1

    target = Target(hide)
    with pytest.raises(
        ReplayError,
        match=r"answered with -1; 4 of the messages are not found in the queue\. Nothing more",
        check=exits(ExitCode.REFUSED),
    ):
        send(target, make_batch())
    assert target.sends == 1


def test_a_message_at_an_impossible_offset_is_an_error() -> None:
    class Lying(Target):
        def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
            result = super().pull(queue, offset, max_messages=max_messages)
            for message in result.messages:
                message.queue_offset = -5  # type: ignore[misc]
            return result

    target = Lying()
    target.store(make_batch().body())
    with pytest.raises(ProtocolError, match="expected a message with queue offset 5 or later, found one with -5"):
        list(find_sent_messages(cast("Any", target), QUEUE, 5, "R1"))


def test_a_search_in_a_queue_without_messages_ends_with_an_error() -> None:
    class Empty(Target):
        def max_offset(self, _: MessageQueue) -> int:
            return 1 << 55

        def pull(self, _: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
            return PullResult(PullStatus.NONE_MATCHED, offset + 1, 0, max_messages, [])

    with pytest.raises(
        ProtocolError,
        match="expected messages from queue offset 1000 to 36028797018963968, but the broker answered NONE_",
    ):
        list(find_sent_messages(cast("Any", Empty()), QUEUE, 0, "R1"))


def test_messages_that_a_killed_broker_did_not_store_are_sent() -> None:
    target = Target(cut_write)
    found = landed(send(target, make_batch()))
    assert found == {0: ("found", 5), 1: ("found", 6), 2: ("sent", 7), 3: ("sent", 8)}
    assert target.bodies[5:] == [b"A", b"B", b"C", b"D"]


@pytest.mark.parametrize(
    "fault",
    [
        UnreachableError("no connection"),
        ProtocolError("no answer"),
        RefusedError("broker", ResponseCode.SYSTEM_BUSY, "busy"),
        RefusedError("broker", ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"),
    ],
)
def test_a_send_waits_for_a_target_that_fails_temporarily(fault: RocketMQError) -> None:
    target = Target(fault, fault, fault)
    assert landed(send(target, make_batch())) == {row: ("sent", 5 + row) for row in range(4)}
    assert (target.sends, len(target.log)) == (4, 9)


@pytest.mark.parametrize(
    ("code", "remark"),
    [
        (ResponseCode.MESSAGE_ILLEGAL, "too large"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.RuntimeException, message body size exceeded, org.apache"),
        (ResponseCode.SYSTEM_ERROR, "java.lang.RuntimeException, Properties size of messageExtBatch exceeded!, org"),
    ],
)
def test_a_refused_message_does_not_stop_the_others(code: ResponseCode, remark: str) -> None:
    def refuse_the_second(target: Target, body: bytes) -> int:
        if b"B" in [item.body for item in parse_batch(body)]:
            target.faults.append(refuse_the_second)
            raise RefusedError("broker", code, remark)
        target.faults.append(refuse_the_second)
        return target.store(body)

    target = Target(refuse_the_second)
    found = send(target, make_batch())
    assert landed(found) == {0: ("sent", 5), 1: ("refused", None), 2: ("sent", 6), 3: ("sent", 7)}
    assert target.alone == 1
    (error,) = [landing.error for landing in found if landing.error]
    assert error.endswith(remark)


def test_messages_stored_before_a_broker_error_are_found() -> None:
    def store_and_fail(target: Target, body: bytes) -> int:
        target.store(body)
        raise RefusedError("broker", ResponseCode.SYSTEM_ERROR, "unknown error")

    target = Target(store_and_fail)
    assert landed(send(target, make_batch())) == {row: ("found", 5 + row) for row in range(4)}
    assert target.sends == 1


def test_a_message_too_large_for_a_batch_is_sent_alone() -> None:
    target = Target(RefusedError("broker", ResponseCode.MESSAGE_ILLEGAL, "too large"))
    assert landed(send(target, make_batch(1))) == {0: ("sent", 5)}
    assert target.alone == 1


def test_a_stopped_replay_does_not_wait_for_a_target() -> None:
    target = Target(*[RefusedError("broker", ResponseCode.SYSTEM_BUSY, "busy")] * 100)
    with pytest.raises(StoppedError, match="busy"):
        send(target, make_batch(), is_stopped=lambda: target.sends == 3)
    assert target.sends == 3


def test_a_send_fails_after_its_patience() -> None:
    target = Target(*[RefusedError("broker", ResponseCode.SYSTEM_BUSY, "busy")] * 100)
    with pytest.raises(
        ReplayError, match=r"not sent for 20 s: .*busy\. 'commitlake replay resume [\w-]+' continues the replay"
    ):
        send(target, make_batch(), patience=20)


@pytest.mark.parametrize("code", [ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION])
def test_a_missing_topic_ends_the_replay(code: ResponseCode) -> None:
    with pytest.raises(ReplayError, match="orders: broker answered", check=exits(ExitCode.REFUSED)):
        send(Target(RefusedError("broker", code, "no")), make_batch())


def test_a_recreated_topic_is_not_searched() -> None:
    target = Target(UnreachableError("no connection"))
    with pytest.raises(
        ReplayError,
        match="ends at queue offset 5, but ended at 9 before: the topic was deleted and created again",
        check=exits(ExitCode.REFUSED),
    ):
        send(target, make_batch(), end=9)


def test_a_queue_that_stops_before_its_end_is_an_error() -> None:
    class Stuck(Target):
        def pull(self, _: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
            return PullResult(PullStatus.NO_NEW, offset, 0, max_messages, [])

    with pytest.raises(
        ProtocolError, match="expected messages from queue offset 2 to 5, but the broker answered NO_NEW"
    ):
        list(find_sent_messages(cast("Any", Stuck()), QUEUE, 2, "R1"))
