"""Tests of a command's process: signals, closed and full streams, and processes left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.logs import messages, open_segment, write_store
from tests.support.signals import ROOT, MarkedProcess, line_for

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START = """
import os, signal, subprocess, sys, threading, time
from commitlake.jobs.cli.process import run_process, set_command_name, call_on_first_signal
set_command_name("commitlake fill")
def ready():
    os.write(1, b"ready")
"""
WAITS = f"{START}run_process(lambda: ready() or time.sleep(60))"
CHILDREN = f"""{START}
def work():
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 60 & (trap '' TERM; sleep 60) & wait"])
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    time.sleep(0.2)
    ready()
    time.sleep(60)
run_process(work)
"""
COMPILED = f"""{START}
import hashlib
run_process(lambda: ready() or hashlib.pbkdf2_hmac("sha256", b"one call", b"of minutes", 1 << 30))
"""
DEAF = f"""{START}
import commitlake.jobs.cli.process
commitlake.jobs.cli.process.GRACE_SECONDS = 0.2
def work():
    ready()
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            print("not me")
run_process(work)
"""
NOISY = f"""{START}
def work():
    ready()
    try:
        time.sleep(60)
    finally:
        print("Traceback", file=sys.stderr)
        raise ValueError("of what the signal has ended")
run_process(work)
"""
AT_THE_END = f"""{START}
import atexit
atexit.register(lambda: ready() or time.sleep(60))
sys.exit(run_process(lambda: 0))
"""
SERVICE = f"""{START}
def work():
    stop = threading.Event()
    with call_on_first_signal(stop.set):
        ready()
        stop.wait()
        if "slow" in sys.argv:
            os.write(1, b"stopping")
            time.sleep(60)
    return 7
sys.exit(run_process(work))
"""


def start(started: list[MarkedProcess], program: str, *arguments: str) -> MarkedProcess:
    """Start a program, and wait until it prints that it is ready."""
    process = MarkedProcess(["-c", program, *arguments], stdout=subprocess.PIPE)
    started.append(process)
    read(process, "ready")
    return process


def read(process: MarkedProcess, text: str) -> None:
    """Wait for a text on its standard output."""
    assert process.process.stdout is not None
    assert process.process.stdout.read(len(text)) == text


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("program", [WAITS, CHILDREN, NOISY, AT_THE_END], ids=["waits", "children", "noisy", "at end"])
def test_a_signal_ends_all_processes_with_one_line_and_its_exit_code(
    started: list[MarkedProcess], program: str, number: signal.Signals
) -> None:
    process = start(started, program)
    process.process.send_signal(number)
    assert process.process.wait(30) == 128 + number
    assert process.left() == []
    assert process.error() == line_for("commitlake fill", number)


@pytest.mark.parametrize("program", [COMPILED, DEAF], ids=["compiled", "deaf"])
def test_a_second_signal_ends_unresponsive_work_immediately(started: list[MarkedProcess], program: str) -> None:
    process = start(started, program)
    process.process.send_signal(signal.SIGINT)
    assert process.process.stderr is not None
    assert process.process.stderr.readline() == "commitlake fill: interrupted\n"
    if process.process.poll() is None:
        process.process.send_signal(signal.SIGINT)
    assert process.process.wait(30) == 130
    assert process.error() == ""


def test_unresponsive_work_is_ended_after_a_timeout(started: list[MarkedProcess]) -> None:
    process = start(started, DEAF)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(30) == 143
    assert process.error() == "commitlake fill: ended by SIGTERM\n"


def test_a_service_handles_the_first_signal_itself(started: list[MarkedProcess]) -> None:
    process = start(started, SERVICE)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(30) == 7
    assert process.error() == "commitlake fill: stopping; a second signal ends it at once\n"


def test_a_second_signal_ends_a_service_that_is_stopping(started: list[MarkedProcess]) -> None:
    process = start(started, SERVICE, "slow")
    process.process.send_signal(signal.SIGTERM)
    read(process, "stopping")
    process.process.send_signal(signal.SIGINT)
    assert process.process.wait(30) == 130
    assert process.error().splitlines()[1:] == ["commitlake fill: interrupted"]


def test_a_signal_that_was_ignored_stays_ignored(started: list[MarkedProcess]) -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    process = start(started, ignoring + WAITS)
    process.process.send_signal(signal.SIGHUP)
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(30) == 143


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_was_blocked_during_startup_ends_the_process(
    started: list[MarkedProcess], number: signal.Signals
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # as spark-submit.sh starts a job
    try:
        started.append(MarkedProcess(["-m", "commitlake.jobs.cli.main", "--help"]))
        started[-1].process.send_signal(number)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert started[-1].process.wait(30) == 128 + number
    assert started[-1].error() == line_for("commitlake", number)


# --- streams ---

PRINTS = f"{START}sys.exit(run_process(lambda: [print('x' * 100) for _ in range(10)] and 0))"


def shell(redirected: str, program: str = PRINTS) -> subprocess.CompletedProcess[str]:
    """Run a program in a shell; `{}` stands for it."""
    command = redirected.format('"$0" -c "$1"')
    return subprocess.run(
        ["bash", "-c", command, sys.executable, program],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("redirected", "code", "error"),
    [
        ("{}", 0, ""),
        ("{} | true; exit ${{PIPESTATUS[0]}}", 141, ""),
        ("{} 2>&1 | true; exit ${{PIPESTATUS[0]}}", 141, ""),
        ("{} > /dev/full", 1, "commitlake fill: error: standard output cannot be written: No space left on device\n"),
        ("{} >&-", 1, "commitlake fill: error: standard output cannot be written: Bad file descriptor\n"),
        ("{} > /dev/full 2>&-", 1, ""),
        ("{} 2> /dev/full <&-", 0, ""),
    ],
)
def test_a_failed_write_to_standard_output_is_never_a_success(redirected: str, code: int, error: str) -> None:
    done = shell(redirected)
    assert (done.returncode, done.stderr) == (code, error)


def test_a_closed_pipe_at_standard_error_does_not_end_a_job() -> None:
    program = (
        f"{START}sys.exit(run_process(lambda: [print('x', file=sys.stderr) for _ in range(99)] and print(7) or 0))"
    )
    done = shell("{} 2> >(true)", program)
    assert (done.returncode, done.stdout) == (0, "7\n")


@pytest.mark.parametrize(("given", "found"), [(None, "1"), ("3", "3")])
def test_linear_algebra_has_one_thread_unless_the_environment_sets_more(given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if given is not None:
        environment["OPENBLAS_NUM_THREADS"] = given
    program = f"{START}run_process(lambda: print(os.environ['OPENBLAS_NUM_THREADS']) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [found]


def test_a_broken_pipe_that_is_not_standard_output_is_an_error() -> None:
    done = shell("{}", f"{START}\ndef work():\n    raise BrokenPipeError('of a server')\nrun_process(work)")
    assert done.returncode == 1
    assert "BrokenPipeError: of a server" in done.stderr


def test_a_file_does_not_get_the_descriptor_of_a_closed_standard_output(tmp_path: Path) -> None:
    program = (
        f"{START}\ndef work():\n    open({str(tmp_path / 'data')!r}, 'w')\n    os.write(1, b'x')\nrun_process(work)"
    )
    assert shell("{} >&-", program).returncode == 1
    assert (tmp_path / "data").read_text() == ""


@pytest.mark.parametrize("command", ["--help", "query --help", "dump --help", "no-such-job 2>&1"])
def test_help_into_a_closed_pipe_prints_no_error(command: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m commitlake.jobs.cli.main {command} | true"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""


# --- jobs ---


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a few segments."""
    size = 1 << 16
    segments = [(number * size, open_segment(messages(40, max_body=20), size)) for number in range(3)]
    return write_store(tmp_path_factory.mktemp("signals") / "store", segments)


JOBS = {
    "dump": ["dump", "{store}"],
    "verify": ["verify", "{store}", "--local", "--processes", "2", "--quiet"],
    "rebuild": ["rebuild", "{store}", "--out", "{out}", "--local", "--quiet"],
}


@pytest.mark.some_cases(4)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize(
    "delay", [0, pytest.param(0.3, marks=pytest.mark.long("ended earlier and later each time")), 0.8]
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_can_be_ended_at_any_time(
    started: list[MarkedProcess], store: Path, tmp_path: Path, name: str, delay: float, number: signal.Signals
) -> None:
    words = [word.format(store=store, out=tmp_path / "out") for word in JOBS[name]]
    job = MarkedProcess(["-m", "commitlake.jobs.cli.main", *words])
    started.append(job)
    job.wait_for_handler()
    try:
        job.process.wait(delay)
    except subprocess.TimeoutExpired:
        os.killpg(job.process.pid, number)  # as a terminal does, and a scheduler
    code = job.process.wait(30)
    assert job.left() == []
    if code == 128 + number:
        assert job.error() in (line_for("commitlake", number), line_for(f"commitlake {name}", number))
    else:
        assert code in (0, 3, -number)  # it was done, or the interpreter was past its last line


THREAD_AT_THE_END = f"""{START}
import atexit
import pyarrow as pa
import pyarrow.csv
class Slow:
    closed = False
    def read(self, size):
        reading.set()
        time.sleep(0.3)
        return b"x"
    def close(self):
        pass
reading = threading.Event()
def work():
    file = pa.PythonFile(Slow(), mode="r")
    threading.Thread(target=lambda: pyarrow.csv.read_csv(file), daemon=True).start()
    reading.wait()
    atexit.register(lambda: print("cleaned up"))
    threading.Thread(target=lambda: time.sleep(0.1) or print("waited for")).start()
    return 3
sys.exit(run_process(work))
"""


def test_a_thread_of_arrow_that_is_still_reading_does_not_abort_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREAD_AT_THE_END], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "waited for\ncleaned up\n", "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_lines_for_the_user_do_not_wait_for_the_end(unbuffered: str) -> None:
    program = f"{START}run_process(lambda: print('a line', file=sys.stderr) or time.sleep(60))"
    command = [sys.executable, "-c", program]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            ready, _, _ = select.select([process.stderr], [], [], 30)
            assert ready
            assert os.read(process.stderr.fileno(), 100) == b"a line\n"
        finally:
            process.kill()
