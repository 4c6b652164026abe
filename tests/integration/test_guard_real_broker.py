"""Guard predicts exactly the segments that a real broker deletes."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from commitlake.jobs.guard import command as guard
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import parse_segment_name, segment_name
from tests.servers import rocketmq
from tests.servers.rocketmq import SMALL_FILES, RocketMQ
from tests.support.logs import closed_segment, messages, open_segment, write_store
from tests.support.waiting import let_pass, wait_until

SEGMENT = 1 << 20
AGES_HOURS = (9, 7, 5, 1, 6, 6, 1, 0)
"""Hours since the last write, oldest first. With two hours reserved, the fourth keeps those after it."""
FORESEEN = datetime.timedelta(minutes=5)
FIRST_CLEANING_SECONDS = 60
WAIT_SECONDS = 150
SETTLE_SECONDS = 25  # two more cleanings
HOUR = datetime.timedelta(hours=1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A broker's settings, and the options that guard gets.

    Attributes:
        name: of the store.
        conf: keys of broker.conf.
        limits: the system properties, as ratios: forced cleaning, warning.
    """

    name: str
    conf: dict[str, object]
    limits: tuple[float, float] = (0.97, 0.98)


def hours(*moments: datetime.datetime) -> str:
    """Return a `deleteWhen` for some moments, in the local time of this machine."""
    return ";".join(sorted({f"{moment.astimezone().hour:02}" for moment in moments}))


def aged_store(root: Path) -> Path:
    """Write a store whose segments have the ages in `AGES_HOURS`."""
    last = len(AGES_HOURS) - 1
    fill = [open_segment if number == last else closed_segment for number in range(last + 1)]
    segments = []
    for number in range(last + 1):
        base = number * SEGMENT
        segments.append((base, fill[number](messages(40, seed=number), SEGMENT, base)))
    write_store(root, segments)
    for number, age in enumerate(AGES_HOURS):
        moment = time.time() - age * 3600
        os.utime(root / "commitlog" / segment_name(number * SEGMENT), (moment, moment))
    return root


def segments_of(store: Path) -> set[str]:
    """Return the original segments that the store still has."""
    found = [path.name for path in (store / "commitlog").iterdir()]
    return {name for name in found if (parse_segment_name(name) or 0) < len(AGES_HOURS) * SEGMENT and name.isdecimal()}


def foreseen(case: Case, servers: RocketMQ, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the segments that guard predicts to be deleted soon; it must report each of them as at risk."""
    code = guard.main(
        [
            *("--store", str(servers.store), "--lake", str(servers.folder / "lake"), "--output", "json"),
            *("--broker-conf", str(servers.folder / "broker.conf"), "--broker-version", servers.version[0]),
            *("--clean-forcibly-ratio", str(case.limits[0]), "--warning-level-ratio", str(case.limits[1])),
            *("--within", "5m"),
        ]
    )
    (store,) = json.loads(capsys.readouterr().out)["rows"]
    until = (datetime.datetime.now(datetime.UTC) + FORESEEN).isoformat()
    soon = {row["segment"] for row in store["segments"] if row["deleted_at"] and row["deleted_at"] <= until}
    assert soon == {row["segment"] for row in store["segments"] if row["verdict"] == "at risk"}
    assert code == (ExitCode.DAMAGE if soon else ExitCode.OK)
    return soon


def wait_for_segments(store: Path, names: set[str], seconds: float) -> None:
    """Wait until a broker has only these segments, or the time is over: the caller compares the remaining ones."""
    with suppress(TimeoutError):
        wait_until(lambda: segments_of(store) == names, seconds, look_seconds=0.5)


@pytest.mark.long("two minutes of waiting; what a broker deletes changes with its version only")
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(("hour", "forced"), id="deletes"),
        pytest.param(("hour", "disk", "forced", "none"), id="all", marks=pytest.mark.long("two more brokers")),
    ],
)
def test_the_broker_deletes_the_segments_that_guard_predicted(
    cases: tuple[str, ...],
    rocketmq_version: str,
    start_broker: Callable[..., RocketMQ],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    soon, far = hours(now, now + 10 * HOUR / 60), hours(now + 12 * HOUR)
    known = [
        Case("hour", {"deleteWhen": soon}),
        Case("disk", {"deleteWhen": far, "diskMaxUsedSpaceRatio": 10}),
        Case("forced", {"deleteWhen": far, "diskMaxUsedSpaceRatio": 10}, (0.01, 0.02)),
        Case("none", {"deleteWhen": far, "diskMaxUsedSpaceRatio": 95}),
    ]
    running: list[tuple[Case, RocketMQ, set[str], float]] = []
    for case in (case for case in known if case.name in cases):
        limits = zip(("CleanForcibly", "WarningLevel"), case.limits, strict=True)
        properties = [f"-Drocketmq.broker.diskSpace{name}Ratio={ratio}" for name, ratio in limits]
        monkeypatch.setattr(rocketmq, "DISK_LIMITS", tuple(properties))
        options = dataclasses.replace(SMALL_FILES, file_reserved_hours=2, extra=case.conf)
        started = time.monotonic()
        servers = start_broker(rocketmq_version, aged_store(tmp_path / case.name), options)
        before = segments_of(servers.store)
        assert len(before) == len(AGES_HOURS)
        found = foreseen(case, servers, capsys)
        assert time.monotonic() - started < FIRST_CLEANING_SECONDS, "too slow a machine to look before it cleans"
        running.append((case, servers, before - found, time.monotonic() + WAIT_SECONDS))
    expired = {segment_name(number * SEGMENT) for number in range(3)}
    everything = {segment_name(number * SEGMENT) for number in range(len(AGES_HOURS))}
    left = {case.name: kept for case, _, kept, _ in running}
    assert left["hour"] == everything - expired
    assert left.get("none", everything) == everything
    for _, servers, kept, deadline in running:
        wait_for_segments(servers.store, kept, deadline - time.monotonic())
    let_pass(SETTLE_SECONDS, "no broker deletes more")
    assert {case.name: sorted(segments_of(servers.store)) for case, servers, _, _ in running} == {
        name: sorted(kept) for name, kept in left.items()
    }
