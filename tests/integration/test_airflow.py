"""The example DAG in a real Airflow: every job runs, and a problem that a job found fails the run at its end."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from tests.support.logs import messages
from tests.support.source_tree import ROOT
from tests.support.wheel_environments import clean_variables

pytestmark = [pytest.mark.long("installs Airflow from the package registry"), pytest.mark.timeout(2400)]
AIRFLOW = "apache-airflow==3.3.2"
OPTIONS = StoreOptions(segment_size_bytes=1 << 16, index_slots=100, index_entries=400)
MESSAGES = 30
TASKS = ("guard", "archive", "audit", "maintain", "verdict")
SETTINGS = """
[guard]
store = "{folder}/store"
lake = "{folder}/lake"
[archive]
store = "{folder}/store"
lake = "{folder}/lake"
local = true
[audit]
lake = "{folder}/lake"
local = true
[maintain]
lake = "{folder}/lake"
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that has Airflow and nothing of this project."""
    folder = tmp_path_factory.mktemp("airflow")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", AIRFLOW], check=True, timeout=1200)
    return folder / "bin" / "airflow"


def run_dag(airflow: Path, folder: Path) -> tuple[int, str]:
    """Run the DAG once over a store and a lake in a folder; return the exit code and what Airflow printed."""
    settings = folder / "commitlake.toml"
    settings.write_text(SETTINGS.format(folder=folder))
    text = (ROOT / "conf" / "examples" / "airflow_nightly.py").read_text()
    assert "/etc/commitlake.toml" in text
    (folder / "dags").mkdir(exist_ok=True)
    (folder / "dags" / "nightly.py").write_text(text.replace("/etc/commitlake.toml", str(settings)))
    environment = {
        **clean_variables(),
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "NO_PROXY": "*",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    }
    printed = []
    for words in (["db", "migrate"], ["dags", "test", "commitlake_nightly"]):
        done = subprocess.run(
            [airflow, *words], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=900
        )
        printed.append(done.stdout + done.stderr)
    return done.returncode, "\n".join(printed)


def write_store(folder: Path, damaged: bytes = b"") -> None:
    """Write a store; the body of a message with this text is damaged."""
    with MessageStore.open(folder / "store", OPTIONS) as store:
        for message in messages(MESSAGES):
            store.put(message)
    segment = min((folder / "store" / "commitlog").iterdir())
    data = segment.read_bytes()
    segment.write_bytes(data.replace(damaged, damaged[::-1], 1))


def archived(folder: Path) -> int:
    """Return the number of archived messages."""
    return len(DeltaTable(folder / "lake" / "messages").to_pyarrow_table())


def test_all_jobs_run_in_order(airflow: Path, tmp_path: Path) -> None:
    write_store(tmp_path)
    code, printed = run_dag(airflow, tmp_path)
    assert code == 0, printed[-5000:]
    assert archived(tmp_path) == MESSAGES
    places = [
        printed.index(f"commitlake_nightly.{task}") for task in ("guard", "archive", "audit", "maintain", "verdict")
    ]
    assert places == sorted(places)


def test_a_problem_fails_the_run_and_names_the_job_and_nothing_is_deleted(airflow: Path, tmp_path: Path) -> None:
    body = messages(MESSAGES)[7].body
    assert len(body) > 10
    write_store(tmp_path, damaged=body)
    code, printed = run_dag(airflow, tmp_path)
    assert code != 0, printed[-5000:]
    assert "look at the logs of: " in printed
    assert archived(tmp_path) == MESSAGES - 1
