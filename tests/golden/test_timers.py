"""Timer log, wheel and checkpoint as a real broker wrote them, read and written again; no server needed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.rocketmq.timer_files import TimerFiles
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.layouts.rocketmq.timers import (
    BLANK,
    BLANK_MAGIC,
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    SLOT,
    UNIT,
    TimerCheckpoint,
    TimerSlot,
    TimerUnit,
    parse_timer_checkpoint,
    parse_timer_slot,
    parse_timer_units,
    serialize_timer_blank,
    serialize_timer_checkpoint,
    serialize_timer_slot,
    serialize_timer_unit,
    slot_position,
)

FOLDER = Path(__file__).parent / "timers"
LOG = {name: FOLDER / f"timerlog-{name}.bin" for name in (f"{0:020d}", f"{452:020d}")}
FILE_SIZE = 452
"""The broker had room for eight units and a blank."""
CHECKPOINT = FOLDER / "timercheck.bin"
SLOTS = FOLDER / "timerwheel-slots.bin"
"""The slots that are used, in the order of their places in the file."""
WRITE_MS, HOUR_MS = 1795406456952 // 1000 * 1000, 3_600_000


def units() -> list[TimerUnit]:
    """Return all units of the recorded log."""
    return [unit for path in LOG.values() for unit in parse_timer_units(path.read_bytes())]


def slots() -> list[TimerSlot]:
    """Return the recorded slots."""
    return [TimerSlot(*values) for values in SLOT.struct.iter_unpack(SLOTS.read_bytes())]


def test_files_match_their_recorded_digests() -> None:
    lines = (FOLDER / "SHA256SUMS").read_text().splitlines()
    assert lines == [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(FOLDER.glob("*.bin"))
    ]


def test_units_match_the_timers_that_were_sent() -> None:
    found = units()
    assert [unit.magic for unit in found] == [MAGIC_DEFAULT] * 10 + [MAGIC_DEFAULT | MAGIC_ROLL] * 2 + [
        MAGIC_DEFAULT | MAGIC_DELETE
    ]
    assert {unit.topic_hash for unit in found} == {java_hash("Timed")}
    assert [unit.physical_offset for unit in found][:3] == [0, 0x138, 0x270]
    assert {(unit.slot_ms - WRITE_MS) // HOUR_MS for unit in found} == {0, 1, 24}  # a roll stops after a day
    for path in LOG.values():
        data = path.read_bytes()
        whole = b"".join(map(serialize_timer_unit, parse_timer_units(data)))
        assert data.startswith(whole)
    first = LOG[f"{0:020d}"].read_bytes()
    assert BLANK.unpack(first, 8 * UNIT.size) == (36, 0, BLANK_MAGIC)
    assert first[8 * UNIT.size :].rstrip(b"\0") == serialize_timer_blank(36)


def test_slots_and_checkpoint_round_trip() -> None:
    assert b"".join(map(serialize_timer_slot, slots())) == SLOTS.read_bytes()
    assert [slot_position(slot.time) // SLOT.size for slot in slots()] == [
        360061, 360062, 363658, 363659, 363660, 446460,
    ]  # fmt: skip
    checkpoint = parse_timer_checkpoint(CHECKPOINT.read_bytes())
    assert checkpoint == TimerCheckpoint(1795406474000, 712, 13, 13, 0, 1795406474180, 13)
    assert serialize_timer_checkpoint(checkpoint) == CHECKPOINT.read_bytes()


def test_timer_store_writes_the_same_log_and_wheel(tmp_path: Path) -> None:
    mappings = MappedFiles(root=tmp_path)
    files = TimerFiles(tmp_path, FILE_SIZE, mappings)
    for unit in units():
        files.append_unit(unit._replace(prev_pos=12345))
    mappings.unmap_all()
    assert {path.name: path.read_bytes() for path in (tmp_path / "timerlog").iterdir()} == {
        name: path.read_bytes() for name, path in LOG.items()
    }
    wheel = (tmp_path / "timerwheel").read_bytes()
    assert [parse_timer_slot(wheel, slot.time) for slot in slots()] == slots()
    assert len(wheel) - wheel.count(0) == len(data := SLOTS.read_bytes()) - data.count(0)
