"""Taking turns, asking processes, and watching their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.asked import AskedProcess, AskedProcessError
from tests.benchmarks.machine import machine
from tests.benchmarks.memory import WorkerMemory, memory_mib, python_descendants
from tests.benchmarks.reading import PASSES, Reading, find_splits, measure, read_bodies
from tests.benchmarks.runs import Name, Run, Step, take_turns
from tests.support.corpus import make_corpora

ANSWERING = """
import json, sys
for line in sys.stdin:
    print("noise")
    print(json.dumps({"seconds": 1.5, "bytes": 2, "messages": 3}), flush=True)
"""


def test_steps_take_turns_and_warm_ups_do_not_count() -> None:
    order: list[str] = []

    def step(what: str) -> Step:
        def run() -> Run:
            order.append(what)
            return Run(len(order), 1)

        return run

    figures = take_turns([(Name("a", what, 1), step(what)) for what in "xy"], runs=2, warm_ups=1)
    assert "".join(order) == "xyxyxy"
    assert figures[Name("a", "y", 1)].seconds == [4, 6]


def test_two_readers_of_one_store_must_find_the_same_number_of_records() -> None:
    steps: list[tuple[Name, Step]] = [
        (Name("a", "hop", 1), lambda: Run(1, 1, 10)),
        (Name("a", "memcpy", 1), lambda: Run(1, 1)),  # looks at no record
        (Name("b", "decode", 1), lambda: Run(1, 1, 11)),
    ]
    with pytest.raises(AssertionError, match=r"expected one number of records, found \[10, 11\]"):
        take_turns(steps, runs=1)


def test_an_asked_process_answers_every_time() -> None:
    with AskedProcess([sys.executable, "-c", ANSWERING]) as process:
        assert process.ask("this") == process.ask("that") == Run(1.5, 2, 3)


def test_an_asked_process_that_ends_is_an_error_with_its_last_output() -> None:
    with (
        pytest.raises(AskedProcessError, match="out of luck"),
        AskedProcess([sys.executable, "-c", "raise SystemExit('out of luck')"]) as process,
    ):
        process.ask("this")


def test_every_pass_reads_the_whole_store(tmp_path: Path) -> None:
    (corpus,) = make_corpora(tmp_path, 0.002, 1024, [1])
    reading = Reading(corpus.store)
    found = {name: measure(reading, name) for name in PASSES}
    assert {run.bytes for run in found.values()} == {2_147_483}
    assert {name: run.messages for name, run in found.items()} == {
        "memcpy": 0,
        "page-cache read": 0,
        "hop": corpus.messages,
        "hop and CRC": corpus.messages,
        "all columns": corpus.messages,
        "all columns, spelled out": corpus.messages,
    }


def test_bodies_are_read_one_after_the_other(tmp_path: Path) -> None:
    (corpus,) = make_corpora(tmp_path, 0.002, 1024, [1])
    bodies = b"".join(window for split in find_splits(corpus.store) for window in read_bodies(split))
    assert bodies.startswith(b'{"order":')
    assert bodies.count(b'{"order":') == corpus.messages


def test_memory_of_python_child_processes_is_measured() -> None:
    holding = "held = bytearray(b'x') * (96 << 20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert Path(f"/proc/{child.pid}") in list(python_descendants(os.getpid()))
        anonymous, peak = memory_mib(Path(f"/proc/{child.pid}"))
        assert 96 < anonymous < peak < 200
        with WorkerMemory(os.getpid()) as memory:
            while not memory.workers:
                pass
        assert memory.anonymous_mib >= 96
        child.communicate("\n")
    assert memory_mib(Path(f"/proc/{child.pid}")) == (0.0, 0.0)


def test_machine_names_processor_and_versions() -> None:
    found = machine()
    assert found["cpu"]
    assert found["cores"] == os.cpu_count()
    assert found["pyspark"].startswith("4.")  # type: ignore[union-attr]
