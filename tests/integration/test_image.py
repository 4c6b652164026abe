"""The image: the steps of its Dockerfile, run in an empty environment, give a command that another user can run.

Only the packages of the distribution are not installed: this machine's Java is used.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes_manifests import EXAMPLES, entry_point
from tests.support.logs import messages, open_segment, write_store
from tests.support.source_tree import ROOT
from tests.support.wheel_environments import clean_variables

pytestmark = [
    pytest.mark.long("installs all packages of the lock from the package registry"),
    pytest.mark.timeout(1800),
]
USER = 10001
PLACE = "/opt/commitlake"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their arguments."""
    text = re.sub(r"^#.*\n", "", (EXAMPLES / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(name, rest) for name, rest in (line.split(" ", 1) for line in lines if line.strip())]


def copy_context(folder: Path) -> None:
    """Copy the files of the repository that the builder gets."""
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    patterns = [line.removeprefix("**/") for line in ignored]
    shutil.copytree(ROOT, folder, symlinks=True, ignore=shutil.ignore_patterns(*patterns), dirs_exist_ok=True)


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The folder of a built image; it can be entered by all users, as the folders of pytest cannot."""
    with tempfile.TemporaryDirectory(prefix="commitlake-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        variables = {
            **clean_variables(),
            "HOME": str(folder / "root"),
            "PATH": f"{folder / 'env' / 'bin'}:{os.environ['PATH']}",
        }
        place = folder / "commitlake"
        for instruction, rest in instructions():
            if instruction == "COPY" and rest.startswith(". "):
                copy_context(place)
            elif instruction == "COPY":
                place.mkdir()
                shutil.copy(ROOT / rest.split()[0], place)
            elif instruction == "RUN" and "apt-get" not in rest:
                step = rest.replace(PLACE, str(place))
                subprocess.run(["sh", "-c", step], check=True, cwd=place, env=variables, timeout=1200)
        yield folder


def image_user() -> int | None:
    """Return the image's user; None if this process may not become it, or if it may not enter this Python's folder."""
    python = Path(sys.executable).resolve()
    return USER if os.geteuid() == 0 and all(each.stat().st_mode & 1 for each in python.parents) else None


def run(image: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the image's command, as its user if possible."""
    user = image_user()
    home = image / "home"
    variables = {**clean_variables(), "HOME": str(home), "PATH": f"{image / 'env' / 'bin'}:{os.environ['PATH']}"}
    command = [str(image / "env" / "bin" / entry_point()[0]), *arguments]
    return subprocess.run(
        command, cwd=home, env=variables, user=user, group=user, extra_groups=None if user is None else [], check=False,
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip


def test_image_archives_and_queries_on_spark(image: Path) -> None:
    home = image / "home"
    store = write_store(home / "store", [(0, open_segment(messages(10), 16384))])
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    if (user := image_user()) is not None:
        os.chown(home, user, user)
    assert "usage: commitlake JOB" in run(image).stdout + run(image, "--help").stdout
    done = run(image, "archive", "--store", str(store), "--lake", "lake", "--local")
    assert done.returncode == 0, done.stderr
    assert "10 messages" in done.stderr
    done = run(image, "query", "--lake", "lake", "--spark", "--sql", "SELECT count(*) AS n FROM messages")
    assert done.returncode == 0, done.stderr
    assert "10" in done.stdout

    # Its first run fetched and compiled nothing: the user's cache has only files of the image.
    assert any((image / "env").rglob("hadoop-aws*.jar"))
    assert not any(home.rglob("*.jar"))
    installed = {path.name for path in (image / "commitlake").rglob("*.nbc")}
    assert {path.name for path in home.rglob("*.nbc")} <= installed != set()
