"""Modules of pyspark are imported without its `__init__`, which runs as soon as something of it is used."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from commitlake.connectors.runtime.deferred_packages import defer_pyspark

DEFER = f"from {defer_pyspark.__module__} import defer_pyspark; defer_pyspark(); import sys; "
TYPES = "from pyspark.sql.types import StructType; "


def run(program: str) -> str:
    """Run a program in a process of its own, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_types_are_imported_without_the_rest() -> None:
    assert run(DEFER + TYPES + "print(StructType().simpleString(), 'pyspark.sql.session' in sys.modules)") == (
        "struct<> False"
    )


@pytest.mark.parametrize(
    "program",
    [
        "import pyspark; print(pyspark.util.__name__ and pyspark.__version__)",
        "import pyspark; print(pyspark.__version__)",
        "import pyspark; from pyspark.sql import SparkSession; print(SparkSession.__name__ and pyspark.__version__)",
        "import pyspark; print(pyspark.SparkConf.__name__ and pyspark.sql.DataFrame.__name__ and pyspark.__version__)",
        "from pyspark import *; import pyspark; print(SparkConf.__name__ and pyspark.__version__)",
    ],
)
def test_it_is_initialized_when_it_is_used(program: str) -> None:
    assert run(DEFER + TYPES + program) == pyspark.__version__


def test_an_unknown_attribute_is_an_error() -> None:
    asked = "print(hasattr(pyspark, '__wrapped__'), hasattr(pyspark.sql, 'Nothing'))"
    assert run(DEFER + "import pyspark.sql; " + asked) == "False False"


def test_a_loaded_package_stays() -> None:
    defer_pyspark()
    assert sys.modules["pyspark"] is pyspark
    assert type(pyspark) is type(sys)
