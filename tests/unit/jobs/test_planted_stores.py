"""Tests of links and special files planted in a store: jobs neither follow them, nor block, nor crash."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackStoreError
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.reading.errors import CommitLogError
from commitlake.jobs.archive import command as archive_job
from commitlake.jobs.audit import command as audit
from commitlake.jobs.dump import command as dump
from commitlake.jobs.erase import command as erase
from commitlake.jobs.explain import command as explain
from commitlake.jobs.guard import command as guard
from commitlake.jobs.lag import command as lag
from commitlake.jobs.maintain import command as maintain
from commitlake.jobs.metrics import command as metrics
from commitlake.jobs.offsets import command as offsets
from commitlake.jobs.query import command as query
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.replay import command as replay
from commitlake.jobs.restore import command as restore
from commitlake.jobs.snapshot import command as snapshot
from commitlake.jobs.tps import command as tps
from commitlake.jobs.verify import command as verify
from commitlake.pipelines.audit import audited_versions as audit_moment
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.safe_store_files import UnsafeFileError
from tests.support.indexed_stores import OPTIONS, Clock, message, write_indexed_store
from tests.support.jmq_stores import OPTIONS as JMQ_OPTIONS
from tests.support.jmq_stores import write_jmq_store
from tests.support.journals import new_message
from tests.support.lakes import archive_store
from tests.support.planted_stores import (
    JMQ_PLANTS,
    LAKE_LINKS,
    LAKE_PLANTS,
    OUT_PLANTS,
    SECRET,
    STORE_PLANTS,
    Canary,
    Plant,
    holds_secret,
)

COUNT = 40
BROKER = "broker-a"
LAKE = "known-lake"
"""A link to a lake of the store, beside the folders of a test."""
KNOWN_CODES = {0, 1, 2, 3, 4}
LOCAL = ("--local", "--threads", "1", "--quiet")
GEOMETRY = ("--index-slots", str(OPTIONS.index_slots), "--index-entries", str(OPTIONS.index_entries))
SIZES = (
    "--segment-size", str(OPTIONS.segment_size_bytes),
    "--queue-file-size", str(OPTIONS.consume_queue_file_size_bytes), *GEOMETRY,
)  # fmt: skip
Job = Callable[[Path, Path], int]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several segments, for reading only."""
    return write_indexed_store(tmp_path_factory.mktemp("planted") / "store", COUNT, options=OPTIONS)


@pytest.fixture(scope="module")
def sound_jmq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in JMQ's layout, for reading only."""
    return write_jmq_store(tmp_path_factory.mktemp("planted-jmq") / "store", COUNT)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use no settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(audit_moment, "WAIT_SECONDS", 0)


def archive(store: Path, out: Path, broker: str | None = None) -> int:
    """Run an archive in this process."""
    try:
        archive_store(store, Lake(str(out / "lake")), broker)
    except (CommitLogError, LakeError, PackStoreError, UnsafeFileError):
        return 2
    return 0


def use_as_broker(store: Path, out: Path) -> int:
    """Open the store, send, receive, save everything, and close."""
    try:
        with MessageStore.open(store, OPTIONS, clock=Clock()) as opened:
            for number in range(20):
                opened.put(message(number, random.Random(1)))
            opened.get("topic-0", 0, 0)
            opened.config.topics.ensure_queue("made", 3)
            opened.config.consumer_offsets.commit("group", "topic-0", 0, 1)
    except (StoreError, UnsafeFileError):
        return 2
    return 0


def audit_of(lake: Path, store: Path, *arguments: str) -> int:
    """Audit a lake with its store."""
    return audit.main(["--deep", "--output", "json", "--lake", str(lake), "--store", str(store), *arguments])


def use_as_jmq_broker(store: Path, out: Path) -> int:
    """Open the store, send, acknowledge, save everything, and close."""
    try:
        with JournalStore.open(store, JMQ_OPTIONS, clock=Clock()) as opened:
            for number in range(20):
                opened.put(new_message(number, "topic-0"))
            opened.offsets.acknowledge(ConsumedQueue("topic-0", "billing", 0), 1)
    except (StoreError, UnsafeFileError):
        return 2
    return 0


READERS: dict[str, Job] = {
    "verify": lambda store, _: verify.main([str(store), "--local", "--processes", "1", "--output", "json"]),
    "explain": lambda store, _: explain.main([str(store), "--topic", "topic-0", "--key", "order-3"]),
    "dump": lambda store, _: dump.main([str(store), "--body-as", "text"]),
    "dump --consumequeue": lambda store, _: dump.main([str(store), "--consumequeue"]),
    "dump --index": lambda store, _: dump.main([str(store), "--index", *GEOMETRY]),
    "guard": lambda store, out: guard.main(["--store", str(store), "--lake", str(out / "none")]),
    "archive": archive,
    "audit": lambda store, out: audit_of(out.parents[1] / LAKE, store),
    "rebuild": lambda store, out: rebuild.main([str(store), "--out", str(out / "rebuilt"), *LOCAL]),
    "salvage": lambda store, out: rebuild.main([str(store), "--out", str(out / "clean"), "--salvage", *LOCAL]),
    "tps": lambda store, _: tps.main(["--store", str(store), "--by", "topic,producer_group", "--format", "json"]),
    "tps --show hot-keys": lambda store, _: tps.main(["--store", str(store), "--show", "hot-keys"]),
    "lag": lambda store, _: lag.main(["--store", str(store), "--all", "--format", "json"]),
    "metrics": lambda store, out: metrics.main(["--store", str(store), "--textfile", str(out / "lag.prom")]),
    "offsets": lambda store, _: offsets.main(
        ["--store", str(store), "--group", "group", "--consume-from", "2020-01-01", "--format", "json"]
    ),
    "snapshot": lambda store, out: snapshot.main(["--store", str(store), "--lake", str(out / "lake")]),
}
"""Jobs that change nothing in a store."""
WRITERS: dict[str, Job] = {
    "rebuild --in-place": lambda store, _: rebuild.main([str(store), "--in-place", *LOCAL]),
    "broker": use_as_broker,
}


JMQ_WRITERS: dict[str, Job] = {**WRITERS, "broker": use_as_jmq_broker}


OTHER_OBJECTS = frozenset({
    "lock is a link to an empty file", "lock is a socket", "lock is a folder",
    "abort is a link", "abort is a second name", "abort is a folder",
    "checkpoint is a link to nothing", "checkpoint is a second name", "checkpoint is a folder", "checkpoint is a FIFO",
    "config is a FIFO", "topics.json is a folder", "topics.json is huge", "topics.json is a FIFO",
    "another topic's folder is a link", "a queue's folder is a FIFO", "a queue's file is a second name",
    "a queue's file is a folder", "another queue's file is a link",
    "an index file is a folder", "an index file is a FIFO",
    "a segment is a socket", "a later segment is a link to nothing", "a later segment is a FIFO",
    "the work folder is a FIFO", "what is replaced is absolute", "the control file is a FIFO",
    "the control file is huge", "a run's folder is a link",
})  # fmt: skip
"""Plants at places where another object is planted each time."""
OTHER_OBJECT = pytest.mark.long("another object is planted in the same place, and the same object elsewhere, each time")


@pytest.mark.some_cases(12)
@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=OTHER_OBJECT) if words in OTHER_OBJECTS else words for words in STORE_PLANTS]
)
def test_nothing_outside_a_store_is_changed_or_copied(
    sound: Path, lake: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_plant(STORE_PLANTS, words, sound, lake, tmp_path, WRITERS, capsys)


@pytest.mark.long("the guards are those of RocketMQ's stores, in which the same is planted each time")
@pytest.mark.parametrize("words", JMQ_PLANTS)
def test_nothing_outside_a_jmq_store_is_changed_or_copied(
    sound_jmq: Path, jmq_lake: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_plant(JMQ_PLANTS, words, sound_jmq, jmq_lake, tmp_path, JMQ_WRITERS, capsys)


def check_plant(
    plants: Mapping[str, Plant],
    words: str,
    sound: Path,
    lake: Path,
    tmp_path: Path,
    writers: Mapping[str, Job],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run every job on a store with a plant; check that the files outside are neither changed nor copied."""
    (tmp_path / LAKE).symlink_to(lake)
    for kind in (READERS, *({name: job} for name, job in writers.items())):
        place = tmp_path / next(iter(kind)).replace(" ", "")
        store = Path(shutil.copytree(sound, place / BROKER / "store"))
        canary = Canary(sound, place / BROKER / "outside")
        plants[words](store, canary.root)
        canary.take()
        for name, job in kind.items():
            out = place / f"out-{name.replace(' ', '')}"
            out.mkdir()
            code = job(store, out)
            printed = capsys.readouterr()
            assert code in KNOWN_CODES, name
            assert "Traceback" not in printed.err, name
            assert "shows the stack trace" not in printed.err, (name, printed.err)
            canary.check()
            if words not in {"commitlog is a link", "journal is a link"}:  # they may lead elsewhere, to be read
                assert holds_secret(out) == [], name
                assert SECRET not in (printed.out + printed.err).encode("utf-8", "replace"), name


@pytest.fixture(scope="module")
def lake(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the store."""
    place = tmp_path_factory.mktemp("lake")
    assert archive(sound, place, BROKER) == 0
    return place / "lake"


@pytest.fixture(scope="module")
def jmq_lake(sound_jmq: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the store in JMQ's layout."""
    place = tmp_path_factory.mktemp("jmq-lake")
    assert archive(sound_jmq, place, BROKER) == 0
    return place / "lake"


def test_an_audit_of_an_unchanged_store_finds_nothing(sound: Path, lake: Path) -> None:
    assert audit_of(lake, sound, "--broker", BROKER) == ExitCode.OK


@pytest.mark.some_cases(8)
@pytest.mark.parametrize("words", OUT_PLANTS)
def test_links_in_an_output_folder_are_not_followed(
    sound: Path, lake: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs: dict[str, Callable[[Path], int]] = {
        "rebuild": lambda out: rebuild.main([str(sound), "--out", str(out), *LOCAL]),
        "salvage": lambda out: rebuild.main([str(sound), "--salvage", "--out", str(out), *LOCAL]),
        "restore": lambda out: restore.main(["--lake", str(lake), "--out", str(out), *SIZES, "--quiet"]),
    }
    for name, job in jobs.items():
        out = tmp_path / name / "out"
        canary = Canary(sound, tmp_path / name / "outside")
        OUT_PLANTS[words](out, canary.root)
        canary.take()
        code = job(out)
        printed = capsys.readouterr()
        assert code in KNOWN_CODES, name
        assert "shows the stack trace" not in printed.err, (name, printed.err)
        canary.check()
        assert holds_secret(out) == [], name


@pytest.mark.some_cases(5)
@pytest.mark.parametrize("words", LAKE_PLANTS)
def test_nothing_outside_a_lake_is_changed_or_read(
    sound: Path, lake: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(lake, tmp_path / "lake"))
    other = Path(shutil.copytree(sound, tmp_path / "broker-b" / "store"))
    canary = Canary(sound, tmp_path / "outside")
    pack = f"broker=other/{0:020d}-{10:020d}-{'0' * 16}.zst"
    for name in (pack, f"packs/{Path(pack).name}", f"packs/.{Path(pack).name}.1-{'0' * 16}.tmp"):
        path = canary.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SECRET)
    for path in canary.root.rglob("*"):
        os.utime(path, (1, 1))  # old enough to be deleted
    LAKE_PLANTS[words](copy, canary.root)
    canary.take()
    out = tmp_path / "out"
    jobs: dict[str, Callable[[], int]] = {
        "query": lambda: query.main(["--lake", str(copy), "--output", "jsonl"]),
        "query --body": lambda: query.main(["--lake", str(copy), "--key", "order-3", "--body-out", str(out / "body")]),
        "restore": lambda: restore.main(["--lake", str(copy), "--out", str(out / "store"), *SIZES, "--quiet"]),
        "archive": lambda: archive(other, tmp_path),
        "audit": lambda: audit_of(copy, sound, "--broker", BROKER),
        "maintain": lambda: maintain.main(["--lake", str(copy), "--keep", "bodies=30d"]),
    }
    out.mkdir()
    for name, job in jobs.items():
        code = job()
        printed = capsys.readouterr()
        assert code in KNOWN_CODES, name
        assert "shows the stack trace" not in printed.err, (name, printed.err)
        canary.check()
        assert SECRET not in (printed.out + printed.err).encode("utf-8", "replace"), name
        assert holds_secret(out) == [], name


@pytest.mark.some_cases(8)
@pytest.mark.parametrize("name", LAKE_LINKS)
def test_every_job_refuses_a_lake_that_contains_a_link(
    sound: Path, lake: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(lake, tmp_path / "lake"))
    canary = Canary(sound, tmp_path / "outside")
    LAKE_LINKS[name](copy, canary.root)
    canary.take()
    before = names_in(copy)
    of_lake = ("--lake", str(copy), "--quiet")
    jobs: dict[str, Callable[[], int]] = {
        "archive": lambda: archive_job.main([*of_lake, "--store", str(sound), "--broker", BROKER, "--local"]),
        "archive, as a library": lambda: archive(sound, tmp_path, BROKER),
        "maintain": lambda: maintain.main([*of_lake]),
        "maintain --repair": lambda: maintain.main([*of_lake, "--repair"]),
        "erase": lambda: erase.main([*of_lake, "--key", "order-3", "--reason", "asked", "--yes", "--now"]),
        "snapshot": lambda: snapshot.main([*of_lake, "--store", str(sound), "--broker", BROKER]),
        "replay": lambda: replay.main([*of_lake, "--topic", "topic-0", "--dry-run"]),
        "query": lambda: query.main([*of_lake, "--output", "jsonl"]),
        "lag": lambda: lag.main([*of_lake]),
        "tps": lambda: tps.main([*of_lake]),
    }
    for job_name, job in jobs.items():
        assert job() == ExitCode.USAGE, job_name
        printed = capsys.readouterr()
        assert SECRET not in (printed.out + printed.err).encode("utf-8", "replace"), job_name
        if job_name != "archive, as a library":
            assert f"{copy / name}: expected a f" in printed.err, (job_name, printed.err)
            assert "found a symbolic link" in printed.err, (job_name, printed.err)
        canary.check()
        assert names_in(copy) == before, job_name


def names_in(folder: Path) -> list[str]:
    """Return the paths of everything in a folder; links are not followed."""
    return sorted(str(Path(parent) / name) for parent, folders, names in os.walk(folder) for name in folders + names)


def test_the_folder_of_a_lake_and_that_of_its_bodies_may_be_links(sound: Path, lake: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(lake, tmp_path / "disk" / "lake"))
    (copy / "bodies").rename(tmp_path / "disk" / "bodies")
    (tmp_path / "lake").symlink_to(copy)
    (tmp_path / "bodies").symlink_to(tmp_path / "disk" / "bodies")
    (copy / "archive_runs" / "_delta_log" / f"{0:020d}.json").write_bytes(b"")
    of_lake = ("--lake", str(tmp_path / "lake"), "--bodies", str(tmp_path / "bodies"), "--quiet")
    assert maintain.main([*of_lake, "--repair"]) == ExitCode.OK
    assert maintain.main([*of_lake]) == ExitCode.OK
    assert query.main([*of_lake, "--key", "order-3", "--body-out", str(tmp_path / "body")]) == ExitCode.OK
