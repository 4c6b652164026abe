"""How the kernel's functions are compiled, and where what came of it is kept.

numba looks at the file of a function to tell whether it is compiled already, not at the files of the functions that
it calls. So the cache lies in a folder whose name is a hash of all that is compiled, and of the formats: beside the
source, or in the user's cache folder where that may not be written. `connectors.warm` fills it at set-up.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import njit
from numba.extending import intrinsic

_HERE = Path(__file__).parent
_PROJECT = _HERE.parents[2]
_SOURCES = ("connectors/commitlog/kernel", "connectors/commitlog/kernel/journal", "connectors/packs", "schemas/layouts")


def _digest() -> str:
    digest = hashlib.sha256()
    for folder in _SOURCES:
        for path in sorted((_PROJECT / folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> str:
    beside = _HERE / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        writable = os.access(beside, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    root = beside if writable else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "commitlake"
    return str(root / f"kernel-{_digest()}")


if not os.environ.get("NUMBA_CACHE_DIR"):
    setattr(numba.config, "CACHE_DIR", _cache_folder())  # noqa: B010 (numba makes its settings at run time)

LINKED_OPTIONS: dict[str, Any] = {
    "nogil": True,
    # Nothing here allocates. Counting references would cost more than all the rest of a record.
    "_nrt": False,
    "error_model": "numpy",
}
"""Of what becomes part of a function that is kept."""
_OPTIONS: dict[str, Any] = {**LINKED_OPTIONS, "cache": True}

compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(**_OPTIONS)
"""A function of the kernel."""
inlined: Callable[[Callable[..., Any]], Callable[..., Any]] = njit(forceinline=True, **_OPTIONS)
"""A small one, which becomes part of those that call it."""
emitted: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
"""A function that says in LLVM's words what it is."""
