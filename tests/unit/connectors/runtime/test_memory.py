"""Memory pool of Arrow in processes of this project's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from commitlake.connectors.runtime import memory


@pytest.mark.parametrize(("chosen", "expected"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_the_system_pool_is_used_unless_the_environment_sets_another(chosen: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    code = (
        f"import pyarrow; from {memory.__name__} import use_system_memory; use_system_memory(); "
        "print(pyarrow.default_memory_pool().backend_name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [expected]
