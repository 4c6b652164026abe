"""The JVM of a session: its start, its errors, and its end."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from commitlake.connectors.spark import jvm
from commitlake.connectors.spark.java import JavaError
from commitlake.jobs.cli.process import list_descendant_ids
from commitlake.schemas.errors import UsageError
from tests.support.waiting import wait_until

SETTINGS = {"spark.master": "local[*]", "spark.jars": "/delta.jar", "spark.driver.memory": "2g"}
OURS = ["--conf", "spark.master=local[*]", "--conf", "spark.jars=/delta.jar", "--conf", "spark.driver.memory=2g"]


def fake_java(home: Path, script: str) -> Path:
    """Make a Java that is a shell script."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)
    return home


def test_the_error_for_a_jvm_that_ends_at_once_has_its_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(
        tmp_path / "java", "echo 'WARNING: Using incubator modules: x' >&2; echo 'no memory left' >&2; exit 1"
    )
    program = "from commitlake.connectors.spark.jvm import launch_jvm; launch_jvm({'spark.master': 'local[1]'})"
    environment = {**os.environ, "JAVA_HOME": str(home), "PYTHONPATH": str(Path(jvm.__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"Spark did not start on the Java in {home}: " in done.stderr
    assert "no memory left\n" in done.stderr
    assert "incubator" not in done.stderr


def test_spark_submit_is_given_our_settings_and_the_users_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    home = fake_java(tmp_path / "java", f'printf "%s\\n" "$@" > {shlex.quote(str(seen))}; exit 1')
    monkeypatch.setenv("JAVA_HOME", str(home))
    given = shlex.join(["--conf", "spark.app.name=a b", "pyspark-shell"])
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    with pytest.raises(JavaError, match=r"^Spark did not start on the Java in "):
        jvm.launch_jvm(SETTINGS)
    words = seen.read_text().splitlines()
    assert words[-len(OURS) - 3 :] == [*OURS, "--conf", "spark.app.name=a b", "pyspark-shell"]
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == given


def test_a_start_that_is_interrupted_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "exec sleep 60")))
    before = set(list_descendant_ids())

    def interrupt(process: subprocess.Popen[bytes], _connection: Path) -> None:
        while len(set(list_descendant_ids()) - before) < 2:  # the script, and the Java that it asks
            assert process.poll() is None
        raise KeyboardInterrupt

    monkeypatch.setattr(jvm, "_connect_to_gateway", interrupt)
    with pytest.raises(KeyboardInterrupt):
        jvm.launch_jvm(SETTINGS)
    wait_until(lambda: not set(list_descendant_ids()) - before)


def test_a_jvm_may_end_its_session_before_this_process_ends(tmp_path: Path) -> None:
    command = ["sh", "-c", "cat; sleep 0.5; touch ended"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=tmp_path) as process:
        jvm.end_session(process)
        assert (tmp_path / "ended").exists()


def test_a_jvm_that_does_not_end_is_not_waited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "_END_SECONDS", 0.05)
    with subprocess.Popen(["sleep", "100"], stdin=subprocess.PIPE) as process:
        jvm.end_session(process)
        assert process.poll() is None
        process.kill()


@pytest.mark.parametrize(
    ("master", "number", "waits"), [("k8s://host", 9, True), ("local[2]", 9, False), ("local[2]", 1, True)]
)
def test_a_job_waits_for_its_jvm_on_a_cluster_and_in_a_container(
    monkeypatch: pytest.MonkeyPatch, master: str, number: int, waits: bool
) -> None:
    registered: list[object] = []
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master {master} pyspark-shell")
    monkeypatch.setattr(jvm, "prepare_launch", lambda _: jvm.JvmLaunch([], None))
    monkeypatch.setattr(jvm, "start_jvm", lambda *_: SimpleNamespace(proc="the process"))
    monkeypatch.setattr("os.getpid", lambda: number)
    monkeypatch.setattr("atexit.register", lambda *given: registered.append(given))
    jvm.launch_jvm({})
    assert registered == ([(jvm.end_session, "the process")] if waits else [])


def test_yarn_without_its_configuration_is_refused_before_a_jvm_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "exit 1")))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    for variable in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(UsageError, match=r"^--master yarn: expected HADOOP_CONF_DIR"):
        jvm.launch_jvm(SETTINGS)


def test_workers_on_yarn_have_no_sockets_in_their_long_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    home = fake_java(tmp_path / "java", f'printf "%s\\n" "$@" > {shlex.quote(str(seen))}; exit 1')
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master yarn pyspark-shell")
    socket = "spark.python.unix.domain.socket.enabled"
    with pytest.raises(JavaError):
        jvm.launch_jvm({**SETTINGS, socket: "true"})
    assert f"{socket}=false" in seen.read_text().splitlines()


def test_a_python_in_an_archive_of_the_users_is_found_by_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYSPARK_PYTHON", "./env/bin/python")
    monkeypatch.chdir(tmp_path)
    options = "--master spark://127.0.0.1:1 --archives env.tgz#env"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{options} pyspark-shell")
    words, folder = jvm.prepare_launch(SETTINGS)
    assert folder is not None
    version = [os.environ["PYSPARK_PYTHON"], "-c", "import sys; print(sys.prefix)"]
    assert subprocess.check_output(version, cwd=folder, text=True).strip() == sys.prefix
    assert words[words.index("--archives") + 1] == f"{tmp_path}/env.tgz#env"


def test_a_python_outside_the_executors_folder_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYSPARK_PYTHON", "../env/bin/python")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://127.0.0.1:1 pyspark-shell")
    with pytest.raises(JavaError, match=r"as an absolute path, or as one below .*, found \.\./env/bin/python$"):
        jvm.prepare_launch(SETTINGS)
    assert not (tmp_path / "cache").exists()
