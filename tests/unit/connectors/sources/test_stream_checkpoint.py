"""Offsets that Spark has kept for a stream: of another version, and damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from commitlake.connectors.sources.stream_checkpoint import read_checkpoint
from commitlake.schemas.errors import UsageError


def read(value: Mapping[str, Any]) -> int:
    return read_checkpoint(value, lambda kept: int(kept["place"]["next"]), version=2, expected="a place")


def test_offsets_are_read() -> None:
    assert read({"version": 2, "place": {"next": 7}}) == 7


@pytest.mark.parametrize("version", [1, None, "2"])
def test_another_version_is_refused(version: object) -> None:
    with pytest.raises(UsageError, match=f"has version {version!r}, expected version 2"):
        read({"version": version, "place": {"next": 7}})


@pytest.mark.parametrize("place", [None, {}, {"next": "x"}, [1], 7])
def test_damaged_offsets_are_refused(place: object) -> None:
    with pytest.raises(UsageError, match=r"is damaged: expected a place, found .* Start with a new checkpoint"):
        read({"version": 2, "place": place})
