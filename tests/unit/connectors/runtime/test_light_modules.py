"""Arrow and numba work the same with the light modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from commitlake.connectors.runtime.light_modules import use_light_modules

PROGRAM = """
import sys
from commitlake.connectors.runtime.light_modules import use_light_modules
use_light_modules()
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from commitlake.connectors.formats.engine.kernel.crc import crc32
print(pc.split_pattern(pa.array(["a,b"]), ",", max_splits=1), pc.is_in.__doc__.splitlines()[0])
print(crc32(np.frombuffer(b"123456789", np.uint8), 0, 9))
names = "pyarrow.vendored.docscrape", "numba.core.entrypoints"
print([name for name in names if hasattr(sys.modules[name], "__file__")])
"""


def test_functions_of_arrow_and_compiled_ones_work() -> None:
    said = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    assert "".join(said.split()).startswith('[["a","b"]]')
    assert said.splitlines()[-2:] == [str(0xCBF43926), "[]"]


def test_a_second_call_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    use_light_modules()
    once = [*sys.meta_path]
    use_light_modules()
    assert sys.meta_path == once


LATE = """
import pyarrow.compute as pc
import pyarrow.vendored.docscrape as before
from commitlake.connectors.runtime.light_modules import use_light_modules
use_light_modules()
import pyarrow.vendored.docscrape as after
print(before is after)
"""


def test_modules_that_are_loaded_stay() -> None:
    assert subprocess.check_output([sys.executable, "-c", LATE], text=True).split() == ["True"]
