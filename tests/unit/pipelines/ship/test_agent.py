"""Tests of the agent: after each round the copy is a prefix of the store, and equals a store that is not written to."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlake.connectors.shipping.ship_target import ShipError, ShipTarget
from commitlake.pipelines.ship.agent import ShipAgent
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.pipelines.ship.source_store import SourceFile, SourceStore
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, parse_manifest, part_name, serialize_manifest
from tests.support.exit_codes import exits
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.ship_targets import MemoryTarget, copied_files, folder_target, manifests
from tests.support.small_stores import all_messages
from tests.support.store_formats import BOLTMQ_DIALECT, FILE_SIZE, JMQ, ROCKETMQ, StoreFormat

SIZE = 1 << 14
SETTINGS = ShipSettings("broker-a", part_bytes=1500, full_part_bytes=1000, merged_count=3, save_bytes=3000)
FIRST = f"commitlog/{segment_name(0)}"


class Killed(BaseException):
    """Exception that stands for the end of the process."""


@pytest.fixture(autouse=True)
def quick_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


class Clock:
    """A clock that advances by a second at each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.now += 1.0
        return self.now


def agent_of(store: Path, target: ShipTarget, settings: ShipSettings = SETTINGS) -> ShipAgent:
    """Return an agent for a store."""
    return ShipAgent(SourceStore(str(store)), target, settings, clock=Clock())


def target_of(kind: str, root: Path) -> ShipTarget:
    """Return an empty target."""
    return MemoryTarget(SETTINGS.full_part_bytes) if kind == "objects" else folder_target(root / "copy")


def assert_is_prefix(store: Path, target: ShipTarget) -> None:
    """Check that each file of a copy has the first bytes of the store's file, and zeros after them."""
    for manifest in manifests(target):
        for name, file in manifest.files.items():
            if file.modified_ms:  # a small file, which the broker may have written again
                continue
            found = copied_files(target)[name]
            assert found[: file.shipped_bytes] == (store / name).read_bytes()[: file.shipped_bytes], name
            assert not any(found[file.shipped_bytes :]), name


def assert_equal(store: Path, target: ShipTarget, log: str) -> None:
    """Check that a copy has the whole log of a store, and its queues."""
    copied = copied_files(target)
    for path in sorted(path for path in store.rglob("*") if path.is_file()):
        name = path.relative_to(store).as_posix()
        data = path.read_bytes()
        is_copied = name.startswith((f"{log}/", "config/", "offset/")) or "queue" in name
        if any(data) and is_copied and not name.endswith(".bak"):  # the store is closed: nothing is written now
            assert copied[name] == data, name


@pytest.mark.parametrize("kind", ["objects", "folder"])
@pytest.mark.parametrize("layout", [ROCKETMQ, BOLTMQ_DIALECT, JMQ], ids=lambda layout: layout.name)
def test_copy_follows_a_broker_that_writes(tmp_path: Path, layout: StoreFormat, kind: str) -> None:
    target = target_of(kind, tmp_path)
    chance = random.Random(7)
    store = layout.open(tmp_path / "store")
    agent = agent_of(tmp_path / "store", target)
    number = 0
    for _ in range(12):
        count = chance.randrange(1, 9)
        layout.fill(store, count, number)
        number += count
        agent.ship_round()
        assert_is_prefix(tmp_path / "store", target)
        if chance.random() < 0.3:
            target.close()
            target = target_of(kind, tmp_path) if kind == "folder" else target
            agent = agent_of(tmp_path / "store", target)
    layout.note_progress(store)
    store.close()
    found = agent.ship_round()
    assert not found.is_waiting or agent.ship_round().is_waiting is False
    assert_equal(tmp_path / "store", target, layout.log)
    assert (agent.counts.cut, agent.counts.rewritten, agent.log_manifest.lost) == (0, 0, ())
    if kind == "folder":
        with layout.open(tmp_path / "copy") as copy:  # as a broker does
            assert sum(map(len, all_messages(copy).values())) == number
    else:
        assert sum("/parts/" in name for name in target.objects) < 40  # type: ignore[attr-defined]


def kill() -> None:
    """End the process."""
    raise Killed


def step_of(before: Callable[[str], None], done: Callable[..., None]) -> Callable[..., None]:
    """Return a step before which the process may be killed."""

    def step(*given: object) -> None:
        before("")
        done(*given)

    return step


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_copy_is_complete_after_kills_at_every_step(tmp_path: Path, kind: str) -> None:
    ROCKETMQ.write(tmp_path / "store", 60, has_consumer=True)
    objects: dict[str, bytes] = {}
    for steps in range(1, 400):
        left = [steps]

        def before(_: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        target = MemoryTarget(SETTINGS.full_part_bytes, before)
        target.objects = objects if kind == "objects" else {}
        place: ShipTarget = target
        if kind == "folder":
            place = folder_target(tmp_path / f"copy-{steps % 3}")
            for name in ("write_file", "write_part", "seal"):
                done = getattr(place, name)
                setattr(place, name, step_of(before, done))
        try:
            agent = agent_of(tmp_path / "store", place)
            agent.ship_round()
            agent.ship_round()
        except Killed:
            place.close()
            assert_is_prefix(tmp_path / "store", place)
            objects = target.objects
            if steps % 10 == 0:
                objects = {}
            continue
        break
    assert left[0] >= 0
    assert_equal(tmp_path / "store", place, "commitlog")
    if kind == "objects":
        named = {file.name for manifest in manifests(target) for file in manifest.files.values() if file.parts}
        assert all(any(f"of-{name}/" in each for name in named) for each in target.objects if "/parts/" in each)


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_queue_file_whose_next_one_exists_already_is_shipped_to_its_end(tmp_path: Path, kind: str) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    queue, size = store / "consumequeue" / "orders" / "0", 20 * 8
    entries = bytes(range(1, 161))
    queue.mkdir(parents=True)
    for number in range(2):
        (queue / f"{number * size:020}").write_bytes(bytes(size))
    target = target_of(kind, tmp_path)
    agent = agent_of(store, target)
    name = f"consumequeue/orders/0/{0:020}"
    for end in (20, 100, 160):
        (queue / f"{0:020}").write_bytes(entries[:end].ljust(size, b"\0"))
        agent.ship_round()
        assert copied_files(target)[name] == entries[:end].ljust(size, b"\0")
    (queue / f"{size:020}").write_bytes(entries[:20].ljust(size, b"\0"))
    agent.ship_round()
    assert [entry.is_sealed for entry in list(manifests(target))[1].files.values()] == [True, False]


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_queue_has_no_hole_if_its_next_file_is_begun_during_a_round(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    size, entries = 20 * 8, bytes(range(1, 161))
    first, second = (f"consumequeue/orders/0/{number * size:020}" for number in range(2))
    (store / first).parent.mkdir(parents=True)
    (store / first).write_bytes(entries[:100].ljust(size, b"\0"))
    (store / second).write_bytes(bytes(size))
    read_end = SourceFile.find_data_end
    reads: list[int] = []

    def data_end(source: SourceFile, start: int) -> int:
        end = read_end(source, start)
        if not reads:
            (store / first).write_bytes(entries)
            (store / second).write_bytes(entries[:20].ljust(size, b"\0"))
        reads.append(end)
        return end

    monkeypatch.setattr(SourceFile, "find_data_end", data_end)
    target = target_of(kind, tmp_path)
    agent = agent_of(store, target)
    agent.ship_round()
    copied = copied_files(target)
    assert copied[first] == entries or not any(copied.get(second, b""))
    agent.ship_round()
    copied = copied_files(target)
    assert copied[first] + copied[second] == entries + entries[:20].ljust(size, b"\0")
    assert len(reads) == 3  # the first file is complete by the second round


@pytest.mark.parametrize("kind", ["objects", "folder"])
@pytest.mark.parametrize("entries", [1, 6])
def test_queue_of_a_topic_that_was_created_again_is_shipped_from_its_start(
    tmp_path: Path, kind: str, entries: int
) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    name, size = f"consumequeue/orders/0/{0:020}", 20 * 8
    (store / name).parent.mkdir(parents=True)
    (store / name).write_bytes(bytes(range(1, 61)).ljust(size, b"\0"))
    target = target_of(kind, tmp_path)
    agent = agent_of(store, target)
    agent.ship_round()
    for end in (20 * entries, 20 * entries + 20):
        changed = bytes(range(101, 101 + end)).ljust(size, b"\0")
        (store / name).write_bytes(changed)
        agent.ship_round()
        assert copied_files(target)[name] == changed
        assert list(manifests(target))[1].files[name].shipped_bytes == end
    assert agent.counts.rewritten == 1
    agent = agent_of(store, target)  # which compares the copy with the store again
    agent.ship_round()
    assert agent.counts.rewritten == 0
    if kind == "objects":
        named = {part_name(name, part) for part in list(manifests(target))[1].files[name].parts}
        assert {each for each in target.objects if name in each} == named  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["objects", "folder"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_queue_with_complete_files_that_was_created_again_replaces_them(
    tmp_path: Path, kind: str, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    size, old, new = 20 * 8, bytes(range(1, 161)), bytes(range(81, 241))
    first, second = (f"consumequeue/orders/0/{number * size:020}" for number in range(2))
    other = f"consumequeue/orders/1/{0:020}"
    for name, data in ((first, old), (second, old[:40]), (other, old[:20])):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(data.ljust(size, b"\0"))
    target = target_of(kind, tmp_path)
    agent = agent_of(store, target)
    agent.ship_round()
    assert list(manifests(target))[1].files[first].is_sealed
    (store / second).unlink()  # as a broker does that deletes the topic
    if is_killed:
        (store / first).write_bytes(bytes(size))
        monkeypatch.setattr(agent, "_save_files_manifest", kill)  # which follows the deletion of the files
        with pytest.raises(Killed):
            agent.ship_round()
        assert first not in getattr(target, "objects", ())
        agent = agent_of(store, target)
    for end in (20, 60):
        (store / first).write_bytes(new[:end].ljust(size, b"\0"))
        agent.ship_round()
        copied = copied_files(target)
        assert {name: copied[name] for name in copied if "orders" in name} == {
            first: new[:end].ljust(size, b"\0"),
            other: old[:20].ljust(size, b"\0"),
        }
    if kind == "objects":
        assert not [name for name in target.objects if name == first or second in name]  # type: ignore[attr-defined]
    else:
        assert not (tmp_path / "copy" / second).exists()
    (store / first).write_bytes(new)
    (store / second).write_bytes(new[:20].ljust(size, b"\0"))
    agent = agent_of(store, target)
    agent.ship_round()
    copied, shipped = copied_files(target), list(manifests(target))[1].files
    assert copied[first] + copied[second] == new + new[:20].ljust(size, b"\0")
    assert (shipped[first].is_sealed, shipped[second].is_sealed) == (True, False)
    assert agent.counts.rewritten == 0


@pytest.mark.parametrize("kind", ["objects", "folder"])
def test_queue_that_changes_during_a_round_is_shipped_by_the_next_round(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    name, size = f"consumequeue/orders/0/{0:020}", 20 * 8
    (store / name).parent.mkdir(parents=True)
    (store / name).write_bytes(bytes(range(1, 61)).ljust(size, b"\0"))
    target = target_of(kind, tmp_path)
    agent = agent_of(store, target)
    agent.ship_round()
    changed = bytes(range(101, 201)).ljust(size, b"\0")
    with monkeypatch.context() as patch:
        # Its new entries may be of records after the end of the log that this round has shipped.
        patch.setattr(agent, "_save_log_manifest", lambda: (store / name).write_bytes(changed))
        agent.ship_round()
    assert list(manifests(target))[1].files[name].shipped_bytes == 0
    assert_is_prefix(store, target)
    agent.ship_round()
    assert copied_files(target)[name] == changed
    assert agent.counts.rewritten == 1


def test_unfinished_record_is_not_shipped(tmp_path: Path) -> None:
    data = open_segment(messages(5), SIZE)
    end = len(data.rstrip(b"\0"))
    store = write_store(tmp_path / "store", [(0, data[: end - 3].ljust(SIZE, b"\0"))])
    target = MemoryTarget()
    agent = agent_of(store, target)
    for _ in range(3):
        agent.ship_round()
    shipped = agent.log_manifest.files[FIRST].shipped_bytes
    assert shipped < end - 3
    write_store(store, [(0, data)])
    for _ in range(2):
        agent.ship_round()
    assert agent.log_manifest.files[FIRST].shipped_bytes == end
    assert copied_files(target)[FIRST] == data


def test_damage_is_shipped_when_a_valid_record_follows_it(tmp_path: Path) -> None:
    data = bytearray(open_segment(messages(20), SIZE))
    data[300:340] = b"\xff" * 40
    target = MemoryTarget()
    agent = agent_of(write_store(tmp_path / "store", [(0, bytes(data))]), target)
    for _ in range(2):
        found = agent.ship_round()
    assert found.damaged_at is None
    assert copied_files(target)[FIRST] == bytes(data)


def test_changed_bytes_are_shipped_again(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(30), SIZE))])
    target = MemoryTarget()
    agent = agent_of(store, target)
    agent.ship_round()
    agent.ship_round()
    changed = open_segment([*messages(12), *messages(9, seed=5)], SIZE)
    write_store(store, [(0, changed)])  # as a broker does that has lost its last pages
    agent.ship_round()
    agent.ship_round()
    shipped = agent.log_manifest.files[FIRST].shipped_bytes
    assert copied_files(target)[FIRST][:shipped] == changed[:shipped]
    assert agent.counts.rewritten == 1
    assert shipped == len(changed.rstrip(b"\0"))


def test_agent_starts_after_the_first_bytes_of_a_segment_were_changed_and_shipped_again(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(30), SIZE))])
    target = MemoryTarget()
    agent = agent_of(store, target)
    agent.ship_round()
    changed = open_segment(messages(3, seed=5), SIZE)
    write_store(store, [(0, changed)])  # as a broker does that has lost its last pages
    agent.ship_round()
    agent.ship_round()
    assert copied_files(target)[FIRST] == changed
    agent_of(store, target)


def test_segments_that_were_deleted_before_are_noted_as_lost(tmp_path: Path) -> None:
    store = write_store(
        tmp_path / "store", [(0, closed_segment(messages(20), SIZE)), (SIZE, open_segment(messages(5), SIZE, SIZE))]
    )
    target = MemoryTarget()
    agent_of(store, target).ship_round()
    for path in (store / "commitlog").iterdir():
        path.unlink()
    write_store(store, [(3 * SIZE, open_segment(messages(7), SIZE, 3 * SIZE))])
    agent = agent_of(store, target)
    agent.ship_round()
    found = agent.ship_round()
    (lost,) = agent.log_manifest.lost
    assert lost == (SIZE + agent.log_manifest.files[f"commitlog/{segment_name(SIZE)}"].size, 3 * SIZE)
    assert agent.counts.cut == 1
    assert found.end == 3 * SIZE + len(open_segment(messages(7), SIZE, 3 * SIZE).rstrip(b"\0"))


def test_second_agent_for_a_prefix_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    target = MemoryTarget()
    first = agent_of(store, target)
    first.ship_round()
    second = agent_of(store, target.other())
    second.ship_round()
    write_store(store, [(0, open_segment(messages(9), SIZE))])
    second.ship_round()
    with pytest.raises(ShipError, match="another agent"):
        first.ship_round()
    with pytest.raises(ShipError, match="another agent"):
        folder_target(tmp_path / "copy"), folder_target(tmp_path / "copy")
    assert_is_prefix(store, target)


def test_prefix_of_another_store_is_refused(tmp_path: Path) -> None:
    target = MemoryTarget()
    agent_of(write_store(tmp_path / "a", [(0, open_segment(messages(3), SIZE))]), target).ship_round()
    other = write_store(tmp_path / "b", [(0, open_segment(messages(3, seed=2), SIZE))])
    with pytest.raises(ShipError, match="another store", check=exits(ExitCode.REFUSED)):
        agent_of(other, target)
    with pytest.raises(ShipError, match="broker-b", check=exits(ExitCode.REFUSED)):
        agent_of(tmp_path / "a", target, ShipSettings("broker-b"))
    foreign = MemoryTarget()
    foreign.objects["commitlog/notes.txt"] = b""
    with pytest.raises(ShipError, match="no agent has shipped", check=exits(ExitCode.REFUSED)):
        agent_of(other, foreign)


def test_missing_parts_are_shipped_again(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(30), SIZE))])
    target = MemoryTarget()
    for _ in range(2):
        agent_of(store, target).ship_round()
    parts = sorted(name for name in target.objects if "/parts/" in name)
    del target.objects[parts[1]]
    agent = agent_of(store, target)
    agent.ship_round()
    assert copied_files(target)[FIRST][: agent.log_manifest.files[FIRST].shipped_bytes]
    assert_is_prefix(store, target)


def test_missing_sealed_file_is_an_error(tmp_path: Path) -> None:
    store = write_store(
        tmp_path / "store", [(0, closed_segment(messages(20), SIZE)), (SIZE, open_segment(messages(5), SIZE, SIZE))]
    )
    target = MemoryTarget()
    agent_of(store, target).ship_round()
    target.objects[FIRST] = b"cut"
    with pytest.raises(ShipError, match="the target was changed"):
        agent_of(store, target)


def test_links_are_refused_in_the_log_and_skipped_elsewhere(tmp_path: Path) -> None:
    store = ROCKETMQ.write(tmp_path / "store", 20)
    (store / "consumequeue" / "orders" / "linked").symlink_to(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (store / "config" / "x.json").symlink_to(secret)
    target = MemoryTarget()
    agent = agent_of(store, target)
    found = agent.ship_round()
    assert len(found.skipped) == 2
    assert all("symbolic link" in text for text in found.skipped)
    assert b"secret" not in b"".join(target.objects.values())
    (store / "commitlog" / segment_name(FILE_SIZE * 100)).symlink_to(secret)
    with pytest.raises(UnsafeFileError, match="symbolic link"):
        agent.ship_round()


def test_links_in_the_target_are_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "commitlog").symlink_to(victim)
    target = folder_target(tmp_path / "copy")
    with pytest.raises(ShipError, match="symbolic link"):
        agent_of(store, target).ship_round()
    assert not list(victim.iterdir())


def test_manifest_that_names_files_outside_is_refused(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))])
    target = MemoryTarget()
    agent = agent_of(store, target)
    agent.ship_round()
    data = serialize_manifest(agent.log_manifest)
    assert parse_manifest(data, "log.json") == agent.log_manifest
    for old, new in ((b"commitlog/0", b"../evil/0"), (b'"size":16384', b'"size":-1'), (b'"version":1', b'"version":2')):
        target.objects[LOG_MANIFEST] = data.replace(old, new)
        with pytest.raises(Exception, match="manifest"):
            agent_of(store, target)


def test_store_is_never_written(tmp_path: Path) -> None:
    store = ROCKETMQ.write(tmp_path / "store", 40)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*")}
    for path in [store, *store.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        agent_of(store, MemoryTarget()).ship_round()
    finally:
        for path in [store, *store.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*")} == before
