"""Tests of the target in a folder, and of combined checksums."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from commitlake.connectors.checksums import combine_crcs
from commitlake.connectors.shipping.folder_target import FolderTarget
from commitlake.connectors.shipping.ship_target import ShipError
from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.safe_store_files import UnsafeFileError
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, Part, ShippedFile
from tests.support.exit_codes import exits
from tests.support.ship_targets import folder_target


def part_of(offset: int, data: bytes) -> Part:
    """Return a part with some bytes."""
    return Part(offset, len(data), zlib.crc32(data))


def test_combined_checksum_is_that_of_the_joined_ranges() -> None:
    chance = random.Random(1)
    for size in (0, 1, 2, 3, 7, 8, 255, 4096, 100_001):
        first, second = chance.randbytes(chance.randrange(100)), chance.randbytes(size)
        assert combine_crcs(zlib.crc32(first), zlib.crc32(second), size) == zlib.crc32(first + second)


def test_file_has_its_full_size_and_zeros_after_the_parts(tmp_path: Path) -> None:
    target = folder_target(tmp_path / "copy")
    file = ShippedFile("commitlog/0", 100)
    first, second = part_of(0, b"abc"), part_of(3, b"defg")
    target.write_part(file, first, b"abc")
    target.write_part(file, second, b"defg")
    path = tmp_path / "copy" / "commitlog" / "0"
    assert path.read_bytes() == b"abcdefg".ljust(100, b"\0")
    assert target.has_part(file, first)
    assert not target.has_part(file, part_of(3, b"deff"))
    assert not target.has_part(file, part_of(90, b"x" * 20))
    target.truncate(file, 3)
    assert path.read_bytes() == b"abc".ljust(100, b"\0")
    target.seal(ShippedFile("commitlog/0", 3))
    assert target.sealed_size(file) == 3
    assert target.sealed_size(ShippedFile("commitlog/1", 3)) is None


def test_manifest_of_another_agent_is_not_replaced(tmp_path: Path) -> None:
    target = folder_target(tmp_path / "copy")
    assert target.read_manifest(LOG_MANIFEST) is None
    target.replace_manifest(LOG_MANIFEST, b"1")
    target.replace_manifest(LOG_MANIFEST, b"2")
    (tmp_path / "copy" / LOG_MANIFEST).write_bytes(b"3")
    for _ in range(2):
        with pytest.raises(ShipError, match="another agent", check=exits(ExitCode.REFUSED)):
            target.replace_manifest(LOG_MANIFEST, b"4")
    with pytest.raises(ShipError, match="another agent", check=exits(ExitCode.REFUSED)):
        folder_target(tmp_path / "copy")
    target.close()
    folder_target(tmp_path / "copy").close()


@pytest.mark.parametrize("name", ["../outside", "/etc/x", "a/../../b", ""])
def test_names_outside_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    target = folder_target(tmp_path / "copy")
    refused = (ShipError, UnsafeFileError)
    with pytest.raises(refused):
        target.write_file(name, b"")
    with pytest.raises(refused):
        target.delete(name)
    with pytest.raises(refused):
        target.write_part(ShippedFile(name, 1), Part(0, 1, 0), b"x")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["copy", "lock", "shipped"]


def test_hard_links_and_devices_in_the_target_are_refused(tmp_path: Path) -> None:
    target = folder_target(tmp_path / "copy")
    victim = tmp_path / "victim"
    victim.write_bytes(b"v")
    (tmp_path / "copy" / "commitlog").mkdir()
    (tmp_path / "copy" / "commitlog" / "0").hardlink_to(victim)
    with pytest.raises(ShipError, match="hard links"):
        target.write_part(ShippedFile("commitlog/0", 1), Part(0, 1, 0), b"x")
    assert victim.read_bytes() == b"v"
    assert FolderTarget(str(tmp_path / "none"), BandwidthLimit()).list_names("commitlog", 1) == []
