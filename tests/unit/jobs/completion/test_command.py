"""Tests of completion scripts in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.completion.command import SHELLS, completion_script, main


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completion")
    files = {shell: folder / f"commitlake.{shell}" for shell in SHELLS}
    for shell, file in files.items():
        file.write_text(completion_script(shell))
    return files


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_all_jobs_and_its_shell_accepts_it(shell: str, scripts: dict[str, Path]) -> None:
    text = scripts[shell].read_text()
    assert [job for job in JOBS if job not in text] == []
    assert "segment-mib" not in text  # an older name, which is hidden
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", scripts[shell]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["commitlake", "arch"], ["archive"]),
        (["commitlake", "query", "--top"], ["--topic"]),
        (["commitlake", "query", "--format", "js"], ["json", "jsonl"]),
        (["commitlake", "completion", ""], list(SHELLS)),
    ],
)
def test_bash_completes(words: list[str], expected: list[str], scripts: dict[str, Path]) -> None:
    quoted = " ".join(f"'{word}'" for word in words)
    command = (
        f"source {scripts['bash']}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n"
        '"$(complete -p commitlake | sed "s/.*-F \\([^ ]*\\).*/\\1/")" commitlake\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert [word for word in expected if word not in done.stdout.split()] == []


def test_the_job_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bash"]) == 0
    assert "complete " in capsys.readouterr().out


def test_an_unknown_shell_is_refused() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["cmd"])
    assert ended.value.code == 2
