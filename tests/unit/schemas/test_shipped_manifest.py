"""Tests of the manifests of shipped stores: a written manifest is read again, and anything else is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.schemas.shipped_manifest import (
    Manifest,
    ManifestError,
    Part,
    ShippedFile,
    is_part_name,
    parse_manifest,
    part_name,
    serialize_manifest,
)

SEALED = ShippedFile("commitlog/00000000000000000000", 100, is_sealed=True, crc=7, head_size=8, head_crc=9)
GROWING = ShippedFile("commitlog/00000000000000000100", 100, (Part(0, 10, 1), Part(10, 5, 2, is_live=True)))
MANIFEST = Manifest("broker-ä", "commitlog", {each.name: each for each in (SEALED, GROWING)}, ((3, 5),), "a", 4, 5)


def test_manifest_is_read_as_it_was_written() -> None:
    assert parse_manifest(serialize_manifest(MANIFEST), "m") == MANIFEST
    assert (SEALED.shipped_bytes, GROWING.shipped_bytes) == (100, 15)


def changed(change: Any) -> bytes:
    """Return the manifest's JSON after a change."""
    document = json.loads(serialize_manifest(MANIFEST))
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        changed(lambda found: found.update(version=2)),
        changed(lambda found: found.update(broker=1)),
        changed(lambda found: found.update(folder="../commitlog")),
        changed(lambda found: found.update(generation=-1)),
        changed(lambda found: found.update(generation=True)),
        changed(lambda found: found["files"][0].update(name="a/../../b")),
        changed(lambda found: found["files"][0].update(size=1 << 63)),
        changed(lambda found: found["files"].append(found["files"][0])),
        changed(lambda found: found["files"][1]["parts"].pop(0)),  # a hole
        changed(lambda found: found["files"][1]["parts"].append([15, 0, 1, 0])),
        changed(lambda found: found["files"][1]["parts"].append([15, 86, 1, 0])),  # after the file's end
        changed(lambda found: found["files"][1]["parts"].append([15, 1, 1 << 32, 0])),
    ],
)
def test_other_data_is_an_error(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse_manifest(data, "m")


def test_names_of_parts_are_distinguished_from_others() -> None:
    name = part_name(GROWING.name, GROWING.parts[1])
    assert is_part_name(name)
    for foreign in (f"{name}/x", "shipped/parts/notes.txt", name.replace("of-", ""), f"shipped/parts//{name}"):
        assert not is_part_name(foreign)
