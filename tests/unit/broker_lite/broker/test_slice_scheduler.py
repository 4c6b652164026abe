"""Long work in slices, and the quotas of clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commitlake.broker_lite.broker.limits import Quotas
from commitlake.broker_lite.broker.slice_scheduler import SLICE_SECONDS, SliceScheduler
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.rocketmq.hosts import Host


def channel(address: str = "10.0.0.1", port: int = 1) -> Channel:
    """Return a client's connection."""
    return Channel(Host.of(address, port), lambda _: None, lambda: None)


def work(name: str, done: list[str], steps: int) -> Iterator[None]:
    """Yield steps of work that records its name at each step."""
    for _ in range(steps):
        done.append(name)
        yield


@pytest.fixture
def one_step_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """End every slice after one step."""
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)


def test_short_work_is_done_immediately() -> None:
    done, slices = list[str](), SliceScheduler()
    assert slices.run(work("a", done, 3))
    assert done == ["a"] * 3
    assert not slices.run_next_slice()


@pytest.mark.usefixtures("one_step_a_slice")
def test_long_work_continues_in_turns() -> None:
    done, woken, slices = list[str](), list[int](), SliceScheduler()
    slices.wake = lambda: woken.append(len(done))
    slices.run(work("a", done, 3))
    slices.run(work("b", done, 2))
    assert woken == [1, 2]
    while slices.run_next_slice():
        pass
    assert done == ["a", "b", "a", "b", "a"]


@pytest.mark.usefixtures("one_step_a_slice")
def test_work_for_a_disconnected_client_is_dropped() -> None:
    done, slices, client = list[str](), SliceScheduler(), channel()
    slices.run(work("a", done, 9), client)
    client.on_connection_lost()
    assert not slices.run_next_slice()
    assert done == ["a"]


@pytest.mark.usefixtures("one_step_a_slice")
def test_other_work_continues_after_a_failure() -> None:
    def failing() -> Iterator[None]:
        yield
        raise ValueError("expected no failure")

    done, slices, client = list[str](), SliceScheduler(), channel()
    slices.run(failing(), client)
    slices.run(work("a", done, 2), client)
    with pytest.raises(ValueError, match="expected no failure"):
        slices.run_next_slice()
    while slices.run_next_slice():
        pass
    assert done == ["a", "a"]


@pytest.mark.usefixtures("one_step_a_slice")
def test_waiting_work_of_one_client_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    slices, client = SliceScheduler(), channel()
    monkeypatch.setattr(slices, "_quotas", Quotas(of_one=2, of_address=9, in_all=9))
    assert [slices.run(work("a", [], 2), client) for _ in range(3)] == [True, True, False]
    assert slices.run(work("b", [], 2), channel(port=2))
    while slices.run_next_slice():
        pass
    assert slices.run(work("a", [], 2), client)
    while slices.run_next_slice():
        pass
    assert not slices.run(work("a", [], 2), client, memory_bytes=2048)
    assert slices.run(work("a", [], 2), client, memory_bytes=2047)


@pytest.mark.usefixtures("one_step_a_slice")
def test_the_number_of_clients_with_started_work_has_a_limit() -> None:
    done, slices, client = list[str](), SliceScheduler(at_once=2), channel()
    slices.run(work("a", done, 3), channel(port=3))
    slices.run(work("b", done, 1), client)
    slices.run(work("c", done, 2), channel(port=2))
    slices.run(work("own", done, 1))
    assert done == ["a", "b", "own"]
    client.on_connection_lost()
    while slices.run_next_slice():
        pass
    assert done == ["a", "b", "own", "a", "a", "c", "c"]
    assert slices.is_empty


@pytest.mark.usefixtures("one_step_a_slice")
def test_clients_take_turns_regardless_of_their_number_of_requests() -> None:
    done, slices, greedy, modest = list[str](), SliceScheduler(), channel(), channel(port=2)
    for _ in range(50):
        assert slices.run(work("greedy", done, 2), greedy)
    assert slices.run(work("modest", done, 3), modest)
    while "modest" not in done or done.count("modest") < 3:
        assert slices.run_next_slice()
    assert done.count("greedy") <= 5
    while slices.run_next_slice():
        pass
    assert done.count("greedy") == 100
    assert slices.is_empty


@pytest.mark.usefixtures("one_step_a_slice")
def test_only_the_oldest_work_of_a_client_is_started() -> None:
    begun, slices, client = list[int](), SliceScheduler(), channel()

    def steps(number: int) -> Iterator[None]:
        begun.append(number)
        yield

    for number in range(4):
        slices.run(steps(number), client)
    assert begun == [0]
    slices.run_next_slice()
    slices.run_next_slice()
    assert begun == [0, 1]
    while slices.run_next_slice():
        pass
    assert begun == [0, 1, 2, 3]


def test_quotas_limit_a_connection_an_address_and_the_total() -> None:
    quotas = Quotas(of_one=3, of_address=4, in_all=6)
    first, neighbour, other = channel(), channel(port=2), channel("10.0.0.2")
    assert quotas.take(first, 3)
    assert not quotas.take(first)
    assert not quotas.take(neighbour, 2)
    assert quotas.take(neighbour)
    assert not quotas.take(other, 3)
    assert quotas.take(other, 2)
    quotas.release(first, 3)
    assert quotas.total == 3
    assert quotas.take(first, 3)


def test_addresses_of_one_ipv6_network_share_a_quota() -> None:
    quotas = Quotas(of_one=3, of_address=3, in_all=9)
    assert quotas.take(channel("2001:db8:1:2::3"), 3)
    assert not quotas.take(channel("2001:db8:1:2:ffff::4"))
    assert quotas.take(channel("2001:db8:1:3::4"))
    assert not quotas.has_room(channel("2001:db8:1:3:ffff::4"), 3)
    assert quotas.take(channel("::ffff:10.0.0.1"), 3)
    assert not quotas.has_room(channel("10.0.0.1"))
    assert quotas.has_room(channel("::ffff:10.0.0.2"))


# --- pauses ---


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all slices."""
    clock = Clock()
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.time.perf_counter", clock)
    return clock


def slow_work(clock: Clock, done: list[str], slices: int) -> Iterator[None]:
    """Yield steps that each take a whole slice."""
    for _ in range(slices):
        clock.now += SLICE_SECONDS
        done.append("slow")
        yield


def test_clients_work_pauses_three_slices_after_each_while_short_requests_arrive(clock: Clock) -> None:
    done, slices = list[str](), SliceScheduler()
    slices.note_short_request()
    slices.run(slow_work(clock, done, 3), channel())
    for count in (1, 2):
        assert len(done) == count
        assert slices.seconds_to_next_slice == pytest.approx(3 * SLICE_SECONDS)
        assert slices.run_next_slice()
        assert len(done) == count
        clock.now += slices.seconds_to_next_slice
        slices.note_short_request()
        assert slices.seconds_to_next_slice == 0
        assert slices.run_next_slice()
    assert len(done) == 3


def test_another_client_waits_for_the_end_of_a_pause_and_the_brokers_own_work_does_not(clock: Clock) -> None:
    done, slices = list[str](), SliceScheduler()
    slices.note_short_request()
    slices.run(slow_work(clock, done, 1), channel())
    slices.run(work("other", done, 1), channel(port=2))
    assert done == ["slow"]
    slices.run(work("own", done, 2))
    assert done == ["slow", "own", "own"]
    clock.now += slices.seconds_to_next_slice
    while slices.run_next_slice():
        pass
    assert done[3:] == ["other"]


def test_without_short_requests_there_is_no_pause(clock: Clock) -> None:
    done, slices = list[str](), SliceScheduler()
    slices.note_short_request()
    clock.now += 1
    slices.run(slow_work(clock, done, 4), channel())
    while slices.run_next_slice():
        assert slices.seconds_to_next_slice == 0
    assert done == ["slow"] * 4
