"""Tests of the timer files of a store: RocketMQ and broker_lite continue from them, also after a crash."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreFilesError
from commitlake.schemas.layouts.rocketmq.timers import (
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_POSITION,
    UNIT,
    WHEEL_SIZE,
    TimerCheckpoint,
    TimerUnit,
    parse_timer_checkpoint,
    parse_timer_slot,
    parse_timer_units,
)
from commitlake.schemas.layouts.rocketmq.topics import TIMER_TOPIC
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.message_stores import SMALL, message
from tests.support.small_stores import STORED_MS, Clock, crash

OPTIONS = replace(SMALL, timer_log_file_size_bytes=4 * UNIT.size + 20)
"""A file of the timer log has room for four units."""
SECOND, MINUTE, DAY = 1000, 60_000, 86_400_000
START_MS = STORED_MS // SECOND * SECOND


class Broker:
    """A store with its deliveries, which can be closed or crashed."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.store = MessageStore.open(root, OPTIONS, clock=clock)
        self.delivery = Delivery(self.store)
        self.clock = clock

    def send(self, number: int, due_ms: int, **more: str) -> None:
        """Send a message to be delivered at a time after the start."""
        pairs = (("UNIQ_KEY", f"U{number}"), ("TIMER_DELIVER_MS", str(START_MS + due_ms)), *more.items())
        self.delivery.send(message(number, properties=pairs))

    def advance_to(self, to_ms: int, limit: int | None = None) -> list[bytes]:
        """Advance the clock second by second to a time after the start; return the bodies delivered."""
        found = []
        for now_ms in range(self.clock.now_ms, START_MS + to_ms + 1, SECOND):
            self.clock.now_ms = now_ms
            found += self.delivery.deliver_due(now_ms, limit)
        return [one.body for result in found if (one := self.store.get_at(result.physical_offset))]

    def bodies(self) -> list[bytes]:
        """Return the bodies of all delivered messages."""
        return [one.body for one in self.store.get("orders", 0, 0, 1000).messages]


def bodies(*numbers: int) -> list[bytes]:
    """Return the bodies of these messages."""
    return [b"body %d" % number for number in numbers]


def log_units(root: Path) -> list[tuple[int, TimerUnit]]:
    """Return the units of a store's timer log, with their positions."""
    found = []
    for path in sorted((root / "timerlog").glob("0*")):
        found += [
            (int(path.name) + number * UNIT.size, unit)
            for number, unit in enumerate(parse_timer_units(path.read_bytes()))
        ]
    return found


def checkpoint(root: Path) -> TimerCheckpoint:
    """Return a store's timercheck."""
    return parse_timer_checkpoint((root / "config" / "timercheck").read_bytes())


def rocketmq_would_deliver(root: Path) -> Counter[int]:
    """Return the timer records, by physical offset, that a RocketMQ broker delivers from the store, with counts.

    Written after TimerMessageStore.recover: all slots of the wheel from the last read time on, corrected by the timer
    log, and the queue from the message after the last unit on.
    """
    if not (root / "config" / "timercheck").exists():
        known, found = TimerCheckpoint(), []
    else:
        known, found = checkpoint(root), log_units(root)
    by_position = dict(found)
    slots = {unit.slot_ms // SECOND: position for position, unit in found}  # the last unit of each
    wheel = (root / "timerwheel").read_bytes() if (root / "timerwheel").exists() else b""
    delivered: Counter[int] = Counter()
    for time, last_position in slots.items():
        position = last_position
        if wheel and (slot := parse_timer_slot(wheel, time)) is not None:
            assert slot.last_pos <= position
        while time * SECOND >= known.last_read_time_ms and position != NO_POSITION:
            unit = by_position[position]
            if not unit.magic & MAGIC_DELETE:
                delivered[unit.physical_offset] += 1
            position = unit.prev_pos
    with MessageStore.open(root, OPTIONS) as store:
        following = known.last_timer_queue_offset
        if found:
            last = store.get_at(found[-1][1].physical_offset)
            assert last is not None
            following = last.queue_offset + 1
        following = min(following, known.master_timer_queue_offset)
        for one in store.get(TIMER_TOPIC, 0, following, 1000).messages:
            delivered[one.physical_offset] += 1
    return delivered


@pytest.fixture
def broker(root: Path, clock: Clock) -> Iterator[Broker]:
    """A broker on a new store at the start of a second."""
    clock.now_ms = START_MS
    broker = Broker(root, clock)
    yield broker
    broker.store.close()


def test_a_store_without_timers_has_no_timer_files(root: Path, broker: Broker) -> None:
    broker.delivery.send(message(0))
    broker.advance_to(3 * SECOND)
    broker.store.close()
    assert not {"timerlog", "timerwheel"} & {path.name for path in root.iterdir()}
    assert not (root / "config" / "timercheck").exists()


def test_files_have_waiting_timers_and_not_delivered_ones(root: Path, broker: Broker) -> None:
    for number, due_ms in enumerate((2_500, 2_700, 60_000, 60_100, 61_000, 3_000)):
        broker.send(number, due_ms)
    assert broker.advance_to(5 * SECOND) == bodies(0, 1, 5)  # 3.0 s counts as part of the second that ends then
    broker.store.close()
    found = checkpoint(root)
    assert (found.last_read_time_ms, found.last_timer_queue_offset) == (START_MS + 3 * SECOND, 6)
    assert [unit.slot_ms - START_MS for _, unit in log_units(root)] == [2000, 2000, 59_000, 60_000, 60_000, 2000]
    assert [path.name for path in sorted((root / "timerlog").iterdir())] == [segment_name(0), segment_name(228)]
    assert (root / "timerwheel").stat().st_size == WHEEL_SIZE
    assert sum(rocketmq_would_deliver(root).values()) == 3


def test_no_timer_is_delivered_before_its_second_is_over(broker: Broker) -> None:
    broker.send(0, 2_500)
    assert broker.delivery.next_due_ms() == START_MS + 3 * SECOND
    assert broker.advance_to(2 * SECOND) == []
    assert broker.advance_to(3 * SECOND) == bodies(0)


@pytest.mark.parametrize("end", [MessageStore.close, crash])
def test_each_timer_is_delivered_once_across_a_restart(
    root: Path, clock: Clock, broker: Broker, end: Callable[[MessageStore], None]
) -> None:
    for number in range(10):
        broker.send(number, 1_500 + number * 1000)
    assert broker.advance_to(5 * SECOND) == bodies(0, 1, 2, 3)
    end(broker.store)
    again = Broker(root, clock)
    again.send(10, 6_500)
    assert again.advance_to(30 * SECOND) == bodies(4, 5, 10, 6, 7, 8, 9)
    again.store.close()
    assert not rocketmq_would_deliver(root)


def test_a_partly_delivered_slot_is_completed_when_the_store_is_closed(root: Path, broker: Broker) -> None:
    for number in range(6):
        broker.send(number, 2_500)
    broker.send(6, 3_500)
    broker.clock.now_ms = START_MS + 10 * SECOND
    assert len(broker.delivery.deliver_due(broker.clock.now_ms, limit=2)) == 2
    broker.store.close()
    assert sum(rocketmq_would_deliver(root).values()) == 1
    again = Broker(root, broker.clock)
    assert again.bodies() == bodies(0, 1, 2, 3, 4, 5)
    assert again.advance_to(12 * SECOND) == bodies(6)
    again.store.close()


def test_a_timer_beyond_the_wheel_is_stored_again_on_the_way(root: Path, clock: Clock, broker: Broker) -> None:
    broker.send(0, 2 * DAY + 5 * MINUTE)
    ((_, unit),) = log_units(root)
    assert (unit.magic, unit.slot_ms - START_MS) == (1 | MAGIC_ROLL, DAY)
    clock.now_ms = START_MS + DAY + 2 * SECOND
    assert broker.advance_to(DAY + 3 * SECOND) == bodies(0)  # the stop
    assert broker.bodies() == []
    crash(broker.store)
    again = Broker(root, clock)
    assert [one.properties.get("TIMER_ROLL_TIMES") for one in again.store.get(TIMER_TOPIC, 0, 0).messages] == [
        None,
        "1",
    ]
    clock.now_ms = START_MS + 2 * DAY + 5 * MINUTE - SECOND
    assert again.advance_to(2 * DAY + 5 * MINUTE) == bodies(0)
    assert again.bodies() == bodies(0)
    again.store.close()


def test_a_cancellation_survives_a_restart(root: Path, clock: Clock, broker: Broker) -> None:
    broker.send(0, 5_500)
    broker.send(1, 5_500)
    broker.send(2, 5_500, TIMER_DEL_UNIQKEY="orders_U0")
    broker.store.close()
    assert [unit.magic & MAGIC_DELETE for _, unit in log_units(root)] == [0, 0, MAGIC_DELETE]
    again = Broker(root, clock)
    assert again.advance_to(10 * SECOND) == bodies(1)
    again.store.close()


def test_a_store_without_timer_files_delivers_waiting_timers_once(root: Path, clock: Clock, broker: Broker) -> None:
    for number in range(4):
        broker.send(number, 1_500 + 10_000 * number)
    broker.advance_to(15 * SECOND)
    broker.store.close()
    for path in (root / "timerlog", root / "timerwheel", root / "config" / "timercheck"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = Broker(root, clock)
    assert again.advance_to(60 * SECOND) == bodies(2, 3)
    again.store.close()


def test_units_of_records_lost_in_a_crash_are_dropped(root: Path, clock: Clock, broker: Broker) -> None:
    broker.send(0, 30_000)
    broker.send(1, 30_000)
    last = broker.store.get(TIMER_TOPIC, 0, 1).messages[0].physical_offset
    crash(broker.store)
    with (root / "commitlog" / segment_name(0)).open("r+b") as file:
        file.seek(last)
        file.write(bytes(64))
    again = Broker(root, clock)
    again.send(2, 31_000)
    assert [unit.slot_ms - START_MS for _, unit in log_units(root)] == [29_000, 30_000]
    assert again.advance_to(60 * SECOND) == bodies(0, 2)
    again.store.close()


def test_a_wheel_of_another_precision_is_kept(root: Path, clock: Clock, broker: Broker) -> None:
    broker.store.files.timers.precision_ms = 100
    broker.send(0, 2_550)
    broker.store.close()
    again = Broker(root, clock)
    assert again.store.files.timers.precision_ms == 100
    again.clock.now_ms = START_MS + 2_600
    assert len(again.delivery.deliver_due(again.clock.now_ms)) == 1
    again.store.close()


def test_files_of_the_timer_log_are_deleted_with_expired_segments(root: Path, broker: Broker) -> None:
    for number in range(10):
        broker.send(number, 60_000)
    sixth = broker.store.get(TIMER_TOPIC, 0, 5).messages[0].physical_offset
    broker.store.files.timers.delete_expired(sixth)
    assert [path.name for path in sorted((root / "timerlog").iterdir())] == [segment_name(228), segment_name(456)]


def test_a_wheel_of_another_size_is_refused(root: Path, broker: Broker) -> None:
    broker.send(0, 60_000)
    broker.store.close()
    with (root / "timerwheel").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(StoreFilesError, match=r"timerwheel: expected a size of 38707200 bytes, found 1000"):
        MessageStore.open(root, OPTIONS)


class Killed(BaseException):
    """Error that stands for the end of the process."""


@pytest.mark.some_cases(7)
@pytest.mark.parametrize(
    "step",
    [
        step if step % 2 == 0 else pytest.param(step, marks=pytest.mark.long("killed before and after it each time"))
        for step in range(40)
    ],
)
def test_a_kill_at_any_step_loses_nothing(
    root: Path, clock: Clock, broker: Broker, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    files = broker.store.files.timers
    left = [step]

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return call(*arguments, **named)

        return run

    with monkeypatch.context() as killing:
        for owner, name in (
            (files, "save_checkpoint"),
            (files, "_append_to_log"),
            (files, "_put_slot"),
            (broker.store, "put"),
        ):
            killing.setattr(owner, name, counted(getattr(owner, name)))
        try:
            for number in range(4):
                broker.send(number, 1_500 + number * 700)
            broker.advance_to(3 * SECOND)
            broker.send(4, 60_000)
            broker.advance_to(5 * SECOND)
        except Killed:
            pass
    parked = {one.body: one.physical_offset for one in broker.store.get(TIMER_TOPIC, 0, 0, 100).messages}
    came = broker.bodies()
    crash(broker.store)
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    would = rocketmq_would_deliver(copy)
    assert {offset for body, offset in parked.items() if body not in came} <= set(would)
    again = Broker(root, clock)
    again.advance_to(70 * SECOND)
    assert Counter(again.bodies()) == Counter(dict.fromkeys(parked, 1))
    again.store.close()
