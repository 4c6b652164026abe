"""Memory pool of Arrow in processes of this project's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from commitlake.connectors.runtime import memory

_LOAD, _USE = "import pyarrow\n", f"from {memory.__name__} import use_system_allocator\nuse_system_allocator()\n"
_TELL = """
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"number": range(100)}), pa.BufferOutputStream())
print(pa.default_memory_pool().backend_name, pa.mimalloc_memory_pool().max_memory() > 0)
"""


@pytest.mark.parametrize(
    ("chosen", "steps", "expected"),
    [
        (None, _LOAD + _USE, ["system", "True"]),
        (None, _USE + _LOAD, ["system", "False"]),
        ("mimalloc", _LOAD + _USE, ["mimalloc", "True"]),
        ("mimalloc", _USE + _LOAD, ["mimalloc", "True"]),
    ],
)
def test_the_system_pool_is_used_unless_the_environment_sets_another(
    chosen: str | None, steps: str, expected: list[str]
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    if chosen is not None:
        environment["ARROW_DEFAULT_MEMORY_POOL"] = chosen
    command = [sys.executable, "-c", steps + _TELL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == expected
