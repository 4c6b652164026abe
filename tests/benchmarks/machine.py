"""The machine on which the figures were measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from tests.benchmarks.java import java_version

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "numpy", "numba")


def machine() -> dict[str, str | float]:
    """Return properties of the machine and its software by name; `load` is the load average of the last minute."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) / (1 << 20), 1),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": java_version(),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def _field(path: str, name: str) -> str | None:
    """Return the first value of a name in a file under /proc."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    values = (line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name)
    return next(values, None)
