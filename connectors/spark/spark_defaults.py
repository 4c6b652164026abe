"""Settings of an installed Spark, from its `spark-defaults.conf`.

A cluster's administrator puts its master, memory and so on there. A job that starts its own JVM keeps them: our
settings are options of spark-submit, which would otherwise override the file. The file is in `SPARK_CONF_DIR`; if that
is not set, in the installation that `SPARK_HOME` names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

NAME = "spark-defaults.conf"
LISTS = ("spark.jars", "spark.sql.extensions")
"""Settings that are lists separated by commas: ours are added to the file's."""
OPTIONS = ("spark.executor.extraJavaOptions",)
"""Options of a JVM: the file's follow ours, and so win. Those of the driver are not joined, because ours ask for a
garbage collector, and a JVM with two of them does not start."""
_PAIR = re.compile(r"(?P<key>[^\s=:#!][^\s=:]*)(?:\s*[=:]\s*|\s+)(?P<value>\S.*)?")


def configuration_folder() -> Path | None:
    """Return the folder of Spark's configuration files, or None if the environment names none."""
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return Path(folder)
    home = os.environ.get("SPARK_HOME")
    folder_there = Path(home) / "conf" if home else None
    return folder_there if folder_there is not None and folder_there.is_dir() else None


def read_defaults(folder: Path | None) -> dict[str, str]:
    """Return the settings in a folder's `spark-defaults.conf`; an empty dictionary if there is no such file."""
    if folder is None:
        return {}
    try:
        text = (folder / NAME).read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return parse_defaults(text)


def parse_defaults(text: str) -> dict[str, str]:
    r"""Parse the lines of a `spark-defaults.conf`: a key, then white space, `=` or `:`, then a value.

    >>> parse_defaults("# a cluster\nspark.master  yarn\nspark.executor.memory=4g\n")
    {'spark.master': 'yarn', 'spark.executor.memory': '4g'}
    """
    pairs = (_PAIR.fullmatch(line.strip()) for line in text.splitlines())
    return {pair["key"]: (pair["value"] or "").strip() for pair in pairs if pair is not None}


def drop_default_settings(settings: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return this program's settings without those that `spark-defaults.conf` sets; lists are joined instead.

    >>> ours = {"spark.master": "local[*]", "spark.jars": "delta.jar", "spark.ui.enabled": "false"}
    >>> drop_default_settings(ours, {"spark.master": "yarn", "spark.jars": "theirs.jar"})
    {'spark.jars': 'theirs.jar,delta.jar', 'spark.ui.enabled': 'false'}
    """
    found = {}
    for key, value in settings.items():
        if key not in defaults:
            found[key] = value
        elif key in LISTS:
            listed = [each for each in (*defaults[key].split(","), *value.split(",")) if each]
            found[key] = ",".join(dict.fromkeys(listed))
        elif key in OPTIONS:
            found[key] = f"{value} {defaults[key]}".strip()
    return found
