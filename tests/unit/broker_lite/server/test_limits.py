"""Tests of the limit on a server's file descriptors, and of those reserved for other uses than connections."""

from __future__ import annotations

import resource

import pytest

from commitlake.broker_lite.server.limits import RESERVED, is_reserved_descriptor, raise_descriptor_limit

HARD = 20_000


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits set so far, starting with that of most systems."""
    known = [(1024, HARD)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: known[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: known.append(pair))
    return known


def test_limit_is_raised_for_the_maximum_number_of_connections(limits: list[tuple[int, int]]) -> None:
    raise_descriptor_limit(5000)
    assert limits[-1] == (5000 + RESERVED, HARD)


def test_limit_is_not_raised_above_the_hard_limit(limits: list[tuple[int, int]]) -> None:
    raise_descriptor_limit(HARD)
    assert limits[-1] == (HARD, HARD)


def test_sufficient_limit_is_left_unchanged(limits: list[tuple[int, int]]) -> None:
    raise_descriptor_limit(100)
    assert limits == [(1024, HARD)]


def test_a_limit_that_cannot_be_raised_is_reported(
    limits: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, pair: tuple[int, int]) -> None:
        raise ValueError(f"not allowed to raise maximum limit to {pair}")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_descriptor_limit(5000)
    assert "cannot raise the limit on file descriptors from 1024" in caplog.text
    assert limits == [(1024, HARD)]


@pytest.mark.parametrize(("soft", "first"), [(1024, 1024 - RESERVED), (256, 128), (20_000, 20_000 - RESERVED)])
def test_the_last_descriptors_are_reserved(limits: list[tuple[int, int]], soft: int, first: int) -> None:
    limits.append((soft, HARD))
    assert not is_reserved_descriptor(first - 1)
    assert is_reserved_descriptor(first)


def test_no_descriptor_is_reserved_without_a_limit(limits: list[tuple[int, int]]) -> None:
    limits.append((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert not is_reserved_descriptor(1 << 30)
