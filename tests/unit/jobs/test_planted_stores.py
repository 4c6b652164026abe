"""Whatever is planted in a store's folder: no job changes what is outside, copies it, waits for it, or fails oddly."""

from __future__ import annotations

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
from connectors.lake.paths import LakePaths
from connectors.packs.location import PackLocation
from jobs import dump, explain, guard, rebuild, verify
from schemas.store_files import UnsafeFileError
from tests.indexed_stores import OPTIONS, Clock, message, write_indexed_store
from tests.planted_stores import SECRET, STORE_PLANTS, Canary, holds_secret

COUNT = 40
KNOWN_CODES = {0, 1, 2, 3, 4}
LOCAL = ("--local", "--threads", "1", "--quiet")
GEOMETRY = ("--index-slots", str(OPTIONS.index_slots), "--index-entries", str(OPTIONS.index_entries))
Job = Callable[[Path, Path], int]

pytestmark = pytest.mark.timeout(120)


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
    except (CommitLogError, UnsafeFileError):
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
