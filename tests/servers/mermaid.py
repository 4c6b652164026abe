"""Mermaid, which renders the output of `commitlake lineage --mermaid` to check its syntax.

npm fetches the published package according to its own settings; one file of it is kept.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.servers.cache import build_once, cache_folder, digest

VERSION = "12.3.0"
INTEGRITY = "sha512-4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmiNAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
"""Digest of the package, from the registry when the version was chosen."""
FETCH_TIMEOUT_SECONDS = 600
_SCRIPT = "package/dist/mermaid.min.js"


class MermaidError(Exception):
    """Error if Mermaid cannot be fetched."""


def mermaid_script() -> Path:
    """Return the path of Mermaid as a single script for browsers.

    Raises:
        MermaidError: There is no npm, or it could not fetch the package.
    """
    target = cache_folder() / f"mermaid-{VERSION}-{digest([VERSION, INTEGRITY])}"
    return build_once(target, _fetch) / "mermaid.min.js"


def prepare_mermaid() -> None:
    """Fetch Mermaid if npm is installed; otherwise the test that needs it reports that."""
    if shutil.which("npm"):
        mermaid_script()


def _fetch(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise MermaidError("there is no npm on the PATH: install it (apt-get install npm)")
    command = [npm, "pack", f"mermaid@{VERSION}", "--silent"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_SECONDS
    )
    package = folder / f"mermaid-{VERSION}.tgz"
    if done.returncode or not package.exists():
        raise MermaidError(f"npm pack failed; it said:\n{(done.stdout + done.stderr)[-4000:]}")
    found = f"sha512-{base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()}"
    if found != INTEGRITY:
        raise MermaidError(f"mermaid {VERSION}: expected {INTEGRITY}, found {found}")
    with tarfile.open(package) as archive:
        script = archive.extractfile(_SCRIPT)
        assert script is not None
        (folder / "mermaid.min.js").write_bytes(script.read())
    package.unlink()
