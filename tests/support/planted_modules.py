"""A folder with modules that record that they were imported."""

from __future__ import annotations

import sys
from pathlib import Path

LOADED = "loaded"
_OTHERS = (
    "commitlake boto3 cryptography deltalake great_expectations numba numpy pandas pip py4j pyarrow pyspark "
    "rich sitecustomize usercustomize"
)
_RECORDS = """
import os
descriptor = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(descriptor, {name!r}.encode() + b"\\n")
"""


def plant_modules(folder: Path) -> Path:
    """Write a module for each name of the standard library and of packages that commands use.

    Args:
        folder: a folder; it is created. An imported module adds its name to the file `LOADED` in it.

    Returns:
        The folder.
    """
    if folder.exists() and any(folder.iterdir()):
        return folder
    folder.mkdir(exist_ok=True)
    for name in [*sys.stdlib_module_names, *_OTHERS.split()]:
        source = _RECORDS.format(path=str(folder / LOADED), name=name)
        if name in ("commitlake", "pyspark"):
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(source)
        else:
            (folder / f"{name}.py").write_text(source)
    # numba reads it; the folder of compiled code, which is run, must not come from it.
    (folder / ".numba_config.yaml").write_text(f"cache_dir: {folder / 'compiled'}\n")
    return folder
