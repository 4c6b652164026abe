"""No command imports what lies in the current folder, which others may be able to write to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.jobs.cli.main import JOBS
from commitlake.schemas.errors import ExitCode
from tests.support.local_archives import write_messages
from tests.support.planted_modules import LOADED, plant_modules

PROGRAM = """
import multiprocessing, sys
from commitlake.jobs.cli import main

if __name__ == "__main__":
    multiprocessing.freeze_support()
    for line in sys.argv[1].splitlines():
        try:
            code = main.main(line.split())
        except SystemExit as error:
            code = error.code
        print("found", code, line.split()[0], flush=True)
"""
PLACE = "--store STORE --broker a"
COMMANDS = f"""
archive {PLACE} --lake LAKE --local
audit --store STORE --broker a --lake LAKE --local
verify STORE --local --processes 2
rebuild STORE --out OUT/rebuilt --local
restore --lake LAKE --out OUT/restored
query --lake LAKE --limit 1
query --lake LAKE --sql "SELECT" --limit 1
lineage --lake LAKE --id 1
journeys --lake LAKE
tps --lake LAKE --html OUT/tps.html
replay --lake LAKE --namesrv 127.0.0.1:1 --dry-run
dlq --lake LAKE
offsets --store STORE --group g --consume-from 2026-01-01
dump STORE --limit 1
lag --store STORE --all
metrics --lake LAKE --file OUT/metrics.prom
snapshot {PLACE} --lake LAKE
ship --store STORE --to OUT/copy --once
guard --store STORE --lake LAKE
erase --lake LAKE --key nothing --yes
evidence --help
catalog --help
publish --iceberg --lake LAKE
maintain --lake LAKE
topics --help
broker --help
doctor --store STORE
completion bash
explain STORE
demo --help
"""


def test_the_commands_are_all_jobs() -> None:
    assert {line.split()[0] for line in COMMANDS.split("\n") if line} == JOBS.keys()


def test_no_command_imports_from_the_current_folder(tmp_path: Path) -> None:
    write_messages(tmp_path / "store", 2000)
    here = plant_modules(tmp_path / "here")
    (program := tmp_path / "program.py").write_text(PROGRAM)
    commands = COMMANDS.replace("STORE", str(tmp_path / "store")).replace("LAKE", str(tmp_path / "lake"))
    done = subprocess.run(
        [sys.executable, str(program), commands.replace("OUT", str(tmp_path)).strip()],
        env={**os.environ, "TERM": "dumb"}, cwd=here, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert not (here / LOADED).exists(), (here / LOADED).read_text()
    codes = dict(line.split()[:0:-1] for line in done.stdout.splitlines() if line.startswith("found "))
    assert codes.keys() == JOBS.keys(), done.stderr[-2000:]
    assert codes["archive"] == codes["audit"] == codes["verify"] == str(int(ExitCode.OK)), done.stderr[-2000:]


@pytest.mark.parametrize("name", ["signal", "commitlake"])
def test_a_planted_module_is_noticed_where_the_current_folder_is_searched(name: str, tmp_path: Path) -> None:
    here = plant_modules(tmp_path)
    subprocess.run([sys.executable, "-c", f"import {name}"], cwd=here, check=False, capture_output=True)
    assert name in (here / LOADED).read_text().split()
