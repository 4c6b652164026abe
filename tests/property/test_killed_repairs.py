"""Rebuilds, salvages and restores killed at any step: run again, they give the same result as undisturbed.

A step is a call that changes the names or the durability of files. The process is killed at the step with a given
number.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.rebuild import command as rebuild
from commitlake.jobs.restore import command as restore
from commitlake.pipelines.archive.task import ArchiveTasks
from commitlake.pipelines.archive.work_planning import find_archive_work
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.segment_names import segment_name
from tests.support.indexed_stores import write_indexed_store
from tests.support.kills import kill_count

COUNT = 120
STEPS = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "truncate", "ftruncate")
KILLS = kill_count(1, share=10)
LONG = pytest.mark.long("rebuilds are killed each time")
LOCAL = ("--local", "--threads", "1", "--quiet")
SIZES = ("--queue-file-size", "320", "--index-slots", "50", "--index-entries", "200", "--threads", "1", "--quiet")
NO_STEP = 0

Main = Callable[[list[str]], int]

pytestmark = pytest.mark.kills


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that nobody changes."""
    return write_indexed_store(tmp_path_factory.mktemp("whole") / "broker-a" / "store", COUNT)


@pytest.fixture(scope="module")
def lake(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with this store."""
    places = Lake(str(tmp_path_factory.mktemp("lake")))
    work = find_archive_work(str(whole), None, places)
    open_messages_for_append(places)
    tasks = ArchiveTasks(work.splits(5000), places, work.commit.run_id, "1")
    manifest = list(tasks.run_task(0, tasks.parts))
    commit_run(
        places,
        [row.data_file for row in manifest if row.table == "messages"],
        work.commit,
        work.previous_progress,
    )
    return Path(places.root)


def run_counted(main: Main, arguments: list[str], step: int, counter: str) -> None:
    """Run a job in a process of its own, and kill it when it reaches a step."""
    numbers = itertools.count(1)
    descriptor = os.open(counter, os.O_WRONLY | os.O_CREAT)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            number = next(numbers)
            os.pwrite(descriptor, b"%d" % number, 0)
            if number == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*positional, **named)

        return call

    for name in STEPS:
        setattr(os, name, counted(getattr(os, name)))
    os._exit(main(arguments))


def run(main: Main, arguments: list[str], counter: Path, step: int = NO_STEP) -> tuple[int, int]:
    """Run a job; return its exit code, or the signal that ended it as a negative number, and its number of steps."""
    counter.unlink(missing_ok=True)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=run_counted, args=(main, arguments, step, str(counter)))
    process.start()
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code, int(counter.read_bytes())


def files_of(root: Path) -> dict[str, bytes]:
    """Return every file except the lock; IndexFiles by their order, and the checkpoint without times of flushes."""
    found: dict[str, bytes] = {}
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path.name == "lock":
            continue
        name = str(path.relative_to(root))
        if ".old-" in name:
            name = re.sub(r"\.old-[^/]*", ".old", name)
        if path.parent.name.split(".")[0] == "index":
            name = f"{Path(name).parent}/{sorted(path.parent.iterdir()).index(path)}"
        found[name] = path.read_bytes()
    return found


def steps_to_die_at(count: int, seed: int) -> Iterator[int]:
    """Yield the first step, the last, and some in between."""
    between = random.Random(seed).sample(range(2, count), min(KILLS, count - 2))
    return iter(sorted({1, count, *between}))


def kill_and_run_again(main: Main, arguments: Callable[[Path], list[str]], places: Iterator[Path], seed: int) -> None:
    """Run a job undisturbed, then kill it at each of some steps and run it again; all results must be equal."""
    undisturbed, counter = next(places), next(places) / "counter"
    code = main(arguments(undisturbed))
    expected = files_of(undisturbed)
    assert code in (ExitCode.OK, ExitCode.DAMAGE)
    run(main, arguments(next(places)), counter)  # imports of modules that are not compiled yet are steps, too
    count = run(main, arguments(next(places)), counter)[1]
    assert count > KILLS
    for step in steps_to_die_at(count, seed):
        place = next(places)
        assert run(main, arguments(place), counter, step) == (-signal.SIGKILL, step)
        again = main(arguments(place))
        # A job killed at its last step had written everything, and existing files are not overwritten.
        assert again == code or (step == count and again == ExitCode.USAGE), step
        found = files_of(place)
        assert sorted(found) == sorted(expected), step
        assert [name for name in expected if found[name] != expected[name]] == [], step


def folders(tmp_path: Path) -> Iterator[Path]:
    """Yield new folders."""
    for number in itertools.count():
        (tmp_path / str(number)).mkdir()
        yield tmp_path / str(number)


def copies(whole: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield copies of a store, each as a broker's own store."""
    for number in itertools.count():
        yield Path(shutil.copytree(whole, tmp_path / f"broker-{number}" / "store"))


@pytest.mark.long("a rebuild in place, which replaces the files of a store, is killed each time")
def test_a_killed_rebuild_completes_when_run_again(whole: Path, tmp_path: Path) -> None:
    kill_and_run_again(rebuild.main, lambda out: [str(whole), "--out", str(out), *LOCAL], folders(tmp_path), seed=1)


def test_a_killed_rebuild_in_place_completes_when_run_again(whole: Path, tmp_path: Path) -> None:
    kill_and_run_again(rebuild.main, lambda root: [str(root), "--in-place", *LOCAL], copies(whole, tmp_path), seed=2)


@LONG
def test_a_killed_salvage_completes_when_run_again(whole: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(whole, tmp_path / "damaged" / "store"))
    path = store / "commitlog" / segment_name(0)
    data = bytearray(path.read_bytes())
    data[int.from_bytes(data[:4], "big") + 90] ^= 1
    path.write_bytes(data)
    arguments = [str(store), "--salvage", *LOCAL]
    kill_and_run_again(rebuild.main, lambda out: [*arguments, "--out", str(out)], folders(tmp_path), seed=3)


@LONG
def test_a_killed_restore_completes_when_run_again(lake: Path, tmp_path: Path) -> None:
    kill_and_run_again(
        restore.main, lambda out: ["--lake", str(lake), "--out", str(out), *SIZES], folders(tmp_path), seed=4
    )
