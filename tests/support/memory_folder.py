"""Folder in memory for the temporary files of tests, which write and delete hundreds of thousands."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
FREE_BYTES = 2 << 30
"""Required free space; three times as much memory must be available, which tests' processes also need."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_MEMORY = Path("/proc/meminfo")


def memory_folder(folder: Path = SHARED_MEMORY, free_bytes: int = FREE_BYTES) -> Path | None:
    """Return the folder if it is in memory, has enough room and allows programs to run, otherwise None.

    Args:
        folder: mount point of a file system in memory.
        free_bytes: required free space; three times as much memory must be available.
    """
    try:
        disk = os.statvfs(folder)
        kinds = {fields[1]: fields[2] for fields in map(str.split, Path("/proc/mounts").read_text().splitlines())}
        if kinds.get(str(folder)) != "tmpfs" or disk.f_bavail * disk.f_frsize < free_bytes:
            return None
        if _available_bytes() < 3 * free_bytes or not _runs_programs(folder):
            return None
    except (OSError, ValueError):
        return None
    return folder


def _available_bytes() -> int:
    """Return the memory available to new processes, within the limit of this container."""
    fields = dict(line.split(":") for line in _MEMORY.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) << 10
    limits = (path.read_text().strip() for path in map(Path, _LIMITS) if path.exists())
    return min([available, *(int(limit) for limit in limits if limit.isdecimal())])


def _runs_programs(folder: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        program = Path(place) / "program"
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o700)
        return subprocess.run([program], check=False).returncode == 0
