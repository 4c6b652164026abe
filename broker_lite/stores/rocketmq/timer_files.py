"""Files of waiting timer messages, as RocketMQ writes them: timer log, timer wheel and timercheck.

A message of the timer topic is entered once: its unit is appended to the timer log, and its slot of the wheel then
points to that unit. The checkpoint contains the time before which all slots were delivered. So the waiting messages are
those that the timer log has in slots from that time on, and those in the timer topic's queue after the last one in the
log.

Files are written in this order, so that a RocketMQ broker can take over at any moment:

    the checkpoint first   master_timer_queue_offset is raised, so that the units determine the message to resume at
    then the unit          a broker resumes after the last one
    then the slot          a broker corrects the wheel by the timer log
    last the checkpoint    last_read_time_ms, once all messages of a slot were delivered

The files are created with the first message. Source: TimerMessageStore, TimerLog, TimerWheel, TimerCheckpoint
(5.5.0).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles
from commitlake.schemas.layouts.rocketmq.timers import (
    BLANK,
    CHECKPOINT,
    CHECKPOINT_PATH,
    CHECKPOINT_SIZE,
    DEFAULT_PRECISION_MS,
    LOG_FOLDER,
    MAGIC_DELETE,
    NO_POSITION,
    UNIT,
    WHEEL_NAME,
    WHEEL_SIZE,
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
from commitlake.schemas.layouts.segment_names import is_segment_name
from commitlake.schemas.safe_store_files import create_file, files_in, make_folders, open_file, remove_file

_READ_AT_ONCE = UNIT.size << 14
_PRECISIONS_MS = (1000, 500, 200, 100, 50, 20, 10, 5, 2, 1)
"""Values of timerPrecisionMs that can be recognised from the wheel."""


class TimerFiles:
    """Timer wheel, timer log and timer checkpoint of one store; several threads may use them.

    Attributes:
        precision_ms: precision of the wheel's slots.
        checkpoint: content of `config/timercheck`.
        has_checkpoint: True if the store has a file `config/timercheck`.
    """

    def __init__(self, root: Path, log_file_size: int, mappings: MappedFiles) -> None:
        """Open the existing timer files.

        Args:
            root: folder of the store.
            log_file_size: size of a timer log file, if there is none yet.

        Raises:
            StoreFilesError: if a file has an impossible size, or one of the timer log is missing.
        """
        self._root = root
        self._mappings = mappings
        self._guard = threading.Lock()
        folder = root / LOG_FOLDER
        size = _timer_log_file_size(folder, root) or log_file_size
        self._log = FileQueue(folder, size, "timer_log_file_size_bytes", mappings)
        self._wheel = self._open_wheel()
        # A broker with snapshots of the wheel starts with an old one, and must then read the whole timer log.
        self._has_snapshots = any(root.glob(f"{WHEEL_NAME}.*"))
        stored = self._read_checkpoint()
        self.has_checkpoint = bool(stored)
        # Brokers before 5.1 wrote fewer fields; zeros confirm nothing.
        self.checkpoint = parse_timer_checkpoint(stored.ljust(CHECKPOINT.size, b"\0"))
        self.precision_ms = DEFAULT_PRECISION_MS
        self._is_dirty = False

    def _read_checkpoint(self) -> bytes:
        try:
            descriptor = open_file(self._root / CHECKPOINT_PATH, trusted_root=self._root)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(descriptor, CHECKPOINT.size, 0)
        finally:
            os.close(descriptor)

    def _open_wheel(self) -> MappedFile | None:
        path = self._root / WHEEL_NAME
        try:
            size = path.lstat().st_size
        except FileNotFoundError:
            return None
        if size == 0:
            remove_file(path, trusted_root=self._root)
            return None
        if size != WHEEL_SIZE:
            raise StoreFilesError(f"{path}: expected a size of {WHEEL_SIZE} bytes, found {size}")
        return MappedFile(path, size, self._mappings)

    def recover(self, log_end: int, *, is_after_crash: bool) -> tuple[list[TimerUnit], TimerUnit | None]:
        """Find the end of the timer log and, if necessary, make the timer wheel agree with the log.

        Args:
            log_end: end of the CommitLog; units of records after it are dropped.
            is_after_crash: True if the store was not closed.

        Returns:
            Units in slots that were not delivered, and the log's last unit, or None.
        """
        slots: dict[int, TimerSlot] = {}
        waiting: list[TimerUnit] = []
        end, last = self._log.start, None
        for position, unit in self._read_units():
            # The log has lost the record in a crash, and the records of all later units with it.
            if unit.physical_offset + unit.record_size > log_end:
                break
            end, last = position + UNIT.size, unit
            if unit.slot_ms >= self.checkpoint.last_read_time_ms:
                _point_slot_to_unit(slots, unit.slot_ms, position, unit.magic)
                waiting.append(unit)
        with self._guard:
            if self._log.is_empty:
                return waiting, last
            self._log.truncate(end)
            self._log.clear_after_end()
            if last is not None and self._wheel is not None:
                self._find_timer_precision(last)
            # After a clean stop, the wheel agrees with the log.
            if slots and (is_after_crash or self._wheel is None):
                self._rebuild_wheel(slots)
        return waiting, last

    def _read_units(self) -> Iterator[tuple[int, TimerUnit]]:
        for start in self._log.file_starts:
            position, end = start, start + self._usable_file_size
            while position < end:
                size = min(_READ_AT_ONCE, end - position)
                count = 0
                for unit in parse_timer_units(self._log.read(position, size)):
                    yield position + count * UNIT.size, unit
                    count += 1
                if count * UNIT.size < size:
                    return
                position += size

    @property
    def _usable_file_size(self) -> int:
        """Number of bytes in a timer log file that can contain units; the rest is needed for its end mark."""
        return (self._log.file_size - BLANK.size) // UNIT.size * UNIT.size

    def _find_timer_precision(self, timer_unit: TimerUnit) -> None:
        """Determine the setting timerPrecisionMs of the broker that wrote a unit, from the unit's slot in the wheel."""
        assert self._wheel is not None
        for precision in _PRECISIONS_MS:
            if parse_timer_slot(self._wheel.memory, timer_unit.slot_ms // precision) is not None:
                self.precision_ms = precision
                return

    def _rebuild_wheel(self, slots: dict[int, TimerSlot]) -> None:
        if self._wheel is not None:
            self._wheel.delete()
        self._wheel = MappedFile.create(self._root / WHEEL_NAME, WHEEL_SIZE, self._mappings)
        for slot_ms, slot in slots.items():
            self._put_slot(slot._replace(time=slot_ms // self.precision_ms))
        self._is_dirty = True

    def _put_slot(self, slot: TimerSlot) -> None:
        assert self._wheel is not None
        data, position = serialize_timer_slot(slot), slot_position(slot.time)
        self._wheel.memory[position : position + len(data)] = data

    def read_timer_units(self, physical_offset: int) -> Iterator[TimerUnit]:
        """Yield the timer log units whose records are at or after an offset of the CommitLog."""
        yield from (unit for _, unit in self._read_units() if unit.physical_offset >= physical_offset)

    def append_unit(self, timer_unit: TimerUnit) -> None:
        """Append a unit to the timer log, with a link to its slot's previous unit, and make the slot point to it.

        Raises:
            DiskFullError: if the disk has no room for a file; nothing was written.
        """
        with self._guard:
            if self._wheel is None:
                self._wheel = MappedFile.create(self._root / WHEEL_NAME, WHEEL_SIZE, self._mappings)
            time = timer_unit.slot_ms // self.precision_ms
            slot = parse_timer_slot(self._wheel.memory, time)
            position = self._append_to_log(timer_unit._replace(prev_pos=slot.last_pos if slot else NO_POSITION))
            slots = {} if slot is None else {time: slot}
            _point_slot_to_unit(slots, time, position, timer_unit.magic)
            self._put_slot(slots[time])
            self._is_dirty = True

    def _append_to_log(self, timer_unit: TimerUnit) -> int:
        room = self._log.free_bytes
        if 0 < room < UNIT.size + BLANK.size:
            if room >= BLANK.size:
                self._log.append(serialize_timer_blank(room))
            # Only the head of the blank is written; the file has zeros already.
            self._log.end += self._log.free_bytes
        position = self._log.end
        self._log.append(serialize_timer_unit(timer_unit))
        return position

    def save_checkpoint(self, now_ms: int, **values: int) -> None:
        """Write the checkpoint after changing the given fields.

        Args:
            now_ms: current time.
            values: changed fields of `TimerCheckpoint`.
        """
        with self._guard:
            changed = replace(self.checkpoint, **values, timestamp=now_ms, counter=self.checkpoint.counter + 1)
            self._write_checkpoint(changed)

    def _write_checkpoint(self, checkpoint: TimerCheckpoint) -> None:
        flushed = 0 if self._has_snapshots or self._log.is_empty else self._log.synced
        self.checkpoint = replace(checkpoint, last_timer_log_flush_pos=flushed)
        data = serialize_timer_checkpoint(self.checkpoint)
        assert len(data) == CHECKPOINT_SIZE
        path = self._root / CHECKPOINT_PATH
        if not self.has_checkpoint:
            make_folders(path.parent, trusted_root=self._root)
            os.close(create_file(path, trusted_root=self._root))
        descriptor = open_file(path, os.O_RDWR, trusted_root=self._root)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)
        self.has_checkpoint = True
        self._is_dirty = True

    def sync(self) -> None:
        """Flush timer log, timer wheel and checkpoint to disk, in this order."""
        with self._guard:
            if not self._is_dirty:
                return
            self._is_dirty = False
            if not self._log.is_empty:
                self._log.sync(self._log.end)
            if self._wheel is not None:
                self._wheel.sync()
            self._write_checkpoint(self.checkpoint)
            # Set by `_write_checkpoint`, whose bytes are flushed just below.
            self._is_dirty = False
            descriptor = open_file(self._root / CHECKPOINT_PATH, os.O_RDWR, trusted_root=self._root)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def delete_expired(self, min_physical_offset: int) -> None:
        """Delete the files of the timer log whose records are no longer in the CommitLog; the last file stays."""
        with self._guard:
            count = 0
            for start in self._log.file_starts[:-1]:
                last = start + self._usable_file_size - UNIT.size
                unit = next(parse_timer_units(self._log.read(last, UNIT.size)), None)
                if unit is not None and unit.physical_offset >= min_physical_offset:
                    break
                count += 1
            self._log.delete_oldest_files(count)


def _point_slot_to_unit(slots: dict[int, TimerSlot], slot_time: int, unit_position: int, magic: int) -> None:
    """Make a slot point to a unit, and adjust the slot's message count: minus 1 for a cancellation, as in RocketMQ."""
    slot = slots.get(slot_time) or TimerSlot(slot_time, unit_position, NO_POSITION, 0)
    num = slot.num + (-1 if magic & MAGIC_DELETE else 1)
    slots[slot_time] = slot._replace(last_pos=unit_position, num=num)


def _timer_log_file_size(folder: Path, root: Path) -> int | None:
    """Return the file size of a timer log, taken from its first file, because it is stored nowhere else."""
    names = files_in(folder, is_segment_name, trusted_root=root)
    return (folder / names[0]).lstat().st_size or None if names else None
