"""great_expectations in processes of all kinds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from commitlake.pipelines.quality import great_expectations_loading

ROOT = Path(__file__).parents[4]


@pytest.mark.long("other ways to start a program are tested each time")
def test_a_program_without_a_file_loads_only_needed_packages() -> None:
    code = (
        "import __main__, sys\n"
        f"from {great_expectations_loading.__name__} import load_great_expectations, skip_unused_packages\n"
        "with skip_unused_packages(): gx = load_great_expectations()\n"
        "loaded = [name for name, module in sys.modules.items() if module is not None]; "
        "spared = ('pyspark', 'boto3', 'scipy.stats.', 'altair.'); "
        "print([name for name in loaded if name.startswith(spared)], hasattr(__main__, '__file__')); "
        "print(sys.modules['scipy.stats'].norm.cdf(0.0), gx.expectations.ExpectColumnMaxToBeBetween.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[] False\n0.5 ExpectColumnMaxToBeBetween\n"), done.stderr


def test_a_loaded_package_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = ModuleType("scipy.stats")
    monkeypatch.setitem(sys.modules, "scipy.stats", loaded)  # it has no specification
    with great_expectations_loading.skip_unused_packages():
        assert sys.modules["scipy.stats"] is loaded
