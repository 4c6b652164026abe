"""Whatever is planted in a store's folder: no job changes what is outside, copies it, waits for it, or fails oddly."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_lite.store import MessageStore, StoreError
from connectors.archive.task import ArchiveTasks
from connectors.archive.work import find_work
from connectors.commitlog.errors import CommitLogError
from connectors.lake.committer import commit_run, open_for_append
from connectors.lake.paths import LakeError, LakePaths
from connectors.packs.errors import PackStoreError
from connectors.packs.location import PackLocation
from jobs import dump, explain, guard, maintain, query, rebuild, restore, verify
from schemas.store_files import UnsafeFileError
from tests.indexed_stores import OPTIONS, Clock, message, write_indexed_store
from tests.planted_stores import LAKE_PLANTS, OUT_PLANTS, SECRET, STORE_PLANTS, Canary, holds_secret

COUNT = 40
KNOWN_CODES = {0, 1, 2, 3, 4}
LOCAL = ("--local", "--threads", "1", "--quiet")
GEOMETRY = ("--index-slots", str(OPTIONS.index_slots), "--index-entries", str(OPTIONS.index_entries))
SIZES = ("--queue-file-size", str(OPTIONS.consume_queue_file_size_bytes), *GEOMETRY)
Job = Callable[[Path, Path], int]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody changes, of several segments."""
    return write_indexed_store(tmp_path_factory.mktemp("planted") / "store", COUNT, options=OPTIONS)


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings from outside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def archive(store: Path, out: Path) -> int:
    """One run, in this process."""
    try:
        lake = LakePaths(str(out / "lake"))
        work = find_work(str(store), None, lake)
        open_for_append(lake.messages)
        tasks = ArchiveTasks(work.splits(5000), lake, PackLocation(lake.bodies), work.commit.run_id, "1")
        manifest = list(tasks.run(range(len(tasks.splits))))
        commit_run(
            lake.messages,
            [row.data_file for row in manifest if row.path and row.table == "messages"],
            work.commit,
            work.started_from,
        )
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
            opened.config.topics.ensure("made", 3)
            opened.config.consumer_offsets.commit("group", "topic-0", 0, 1)
    except (StoreError, UnsafeFileError):
        return 2
    return 0


READERS: dict[str, Job] = {
    "verify": lambda store, _: verify.main([str(store), "--local", "--processes", "1", "--output", "json"]),
    "explain": lambda store, _: explain.main([str(store), "--topic", "topic-0", "--key", "order-3"]),
    "dump": lambda store, _: dump.main([str(store), "--body", "text"]),
    "dump --consumequeue": lambda store, _: dump.main([str(store), "--consumequeue"]),
    "dump --index": lambda store, _: dump.main([str(store), "--index", *GEOMETRY]),
    "guard": lambda store, out: guard.main(["--store", str(store), "--lake", str(out / "none")]),
    "archive": archive,
    "rebuild": lambda store, out: rebuild.main([str(store), "--out", str(out / "rebuilt"), *LOCAL]),
    "salvage": lambda store, out: rebuild.main([str(store), "--out", str(out / "clean"), "--salvage", *LOCAL]),
}
"""Jobs that change nothing in a store."""
WRITERS: dict[str, Job] = {
    "rebuild --in-place": lambda store, _: rebuild.main([str(store), "--in-place", *LOCAL]),
    "broker": use_as_broker,
}


@pytest.mark.parametrize("words", STORE_PLANTS)
def test_nothing_outside_a_store_is_changed_or_copied(
    sound: Path, tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in (READERS, *({name: job} for name, job in WRITERS.items())):
        place = tmp_path / next(iter(kind)).replace(" ", "")
        store = Path(shutil.copytree(sound, place / "broker-a" / "store"))
        canary = Canary(sound, place / "broker-a" / "outside")
        STORE_PLANTS[words](store, canary.root)
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
            if "log is a link" not in words:  # that of the folder may lead elsewhere, to be read
                assert holds_secret(out) == [], name
                assert SECRET not in (printed.out + printed.err).encode("utf-8", "replace"), name


@pytest.fixture(scope="module")
def lake(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of the store."""
    place = tmp_path_factory.mktemp("lake")
    assert archive(sound, place) == 0
    return place / "lake"


@pytest.mark.parametrize("words", OUT_PLANTS)
def test_what_lies_in_the_folder_of_a_run_leads_nowhere(
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
