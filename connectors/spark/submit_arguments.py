"""Arguments of spark-submit: our settings, and the options that the user has given in `PYSPARK_SUBMIT_ARGS`."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from commitlake.connectors.spark.spark_defaults import configuration_folder, read_defaults
from commitlake.connectors.spark.yarn import MASTER as YARN

VARIABLE = "PYSPARK_SUBMIT_ARGS"
REMOTE_VARIABLE = "SPARK_REMOTE"
"""Variable with the URL of a server of Spark Connect, as for pyspark."""
FLAGS = frozenset({"--verbose", "-v", "--supervise"})
"""spark-submit's options that take no value; all others do."""
_PATH_OPTIONS = frozenset({"--jars", "--files", "--py-files", "--archives", "--properties-file", "--keytab"})


def read_user_arguments() -> list[str]:
    """Return the arguments in the user's variable `PYSPARK_SUBMIT_ARGS`, as a list."""
    return shlex.split(os.environ.get(VARIABLE, "pyspark-shell"))


def uses_cluster() -> bool:
    """Return whether the user or `spark-defaults.conf` has chosen a master whose tasks run on other machines."""
    return bool(os.environ.get(REMOTE_VARIABLE)) or is_cluster_master(
        read_user_arguments(), read_defaults(configuration_folder())
    )


def is_cluster_master(arguments: Sequence[str], defaults: Mapping[str, str]) -> bool:
    """Return whether the master is on other machines, by spark-submit's arguments, or else by `spark-defaults.conf`."""
    return not _effective_master(arguments, defaults).startswith("local")


def is_yarn_master(arguments: Sequence[str], defaults: Mapping[str, str]) -> bool:
    """Return whether the master is YARN, by spark-submit's arguments, or else by `spark-defaults.conf`."""
    return _effective_master(arguments, defaults) == YARN


def _effective_master(arguments: Sequence[str], defaults: Mapping[str, str]) -> str:
    return parse_master(arguments) or defaults.get("spark.master", "local")


def merge_arguments(settings: Mapping[str, str], user_arguments: Sequence[str]) -> list[str]:
    """Return spark-submit's arguments: this program's settings, then the user's arguments, with the jars of both.

    >>> merge_arguments({"spark.jars": "ours"}, ["--jars", "a,b", "pyspark-shell"])
    ['--conf', 'spark.jars=ours', '--jars', 'a,b,ours', 'pyspark-shell']
    """
    theirs = list(user_arguments)
    for place, word in enumerate(user_arguments):
        if word == "--jars":
            theirs[place + 1] += f",{settings['spark.jars']}"
        elif word.startswith("--jars="):
            theirs[place] += f",{settings['spark.jars']}"
    return [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")] + theirs


def parse_master(arguments: Sequence[str]) -> str:
    """Return the master that spark-submit uses: that of `--master`, else the last value of `spark.master`.

    >>> parse_master(["--conf", "spark.master=local[*]", "--master", "yarn", "pyspark-shell"])
    'yarn'
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--master")
    known, _ = parser.parse_known_args(list(arguments))
    return str(known.master or parse_settings(arguments).get("spark.master", ""))


def parse_settings(arguments: Sequence[str]) -> dict[str, str]:
    """Return the settings that `--conf` arguments give; the last one for a key counts."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", "-c", action="append", default=[])
    known, _ = parser.parse_known_args(list(arguments))
    return dict(setting.split("=", 1) for setting in known.conf if "=" in setting)


def make_paths_absolute(arguments: Sequence[str]) -> list[str]:
    """Return spark-submit's arguments with absolute paths, and with each option and its value as two arguments.

    >>> make_paths_absolute(["--jars=/a.jar,hdfs://b/c.jar", "--name", "x", "pyspark-shell"])
    ['--jars', '/a.jar,hdfs://b/c.jar', '--name', 'x', 'pyspark-shell']
    """
    found: list[str] = []
    for word in arguments:
        option, has_value, value = word.partition("=")
        if has_value and option in _PATH_OPTIONS:
            found += [option, value]
        else:
            found.append(word)
        if len(found) > 1 and found[-2] in _PATH_OPTIONS:
            found[-1] = ",".join(path if ":" in path else str(Path(path).absolute()) for path in found[-1].split(","))
    return found


def option_pairs(options: Sequence[str]) -> list[tuple[str, ...]]:
    """Return spark-submit's options as pairs of option and value.

    >>> option_pairs(["--conf=a=b", "-v", "--name", "x"])
    [('--conf', 'a=b'), ('-v',), ('--name', 'x')]
    """
    found: list[tuple[str, ...]] = []
    words = iter(options)
    for word in words:
        name, has_value, value = word.partition("=")
        if has_value:
            found.append((name, value))
        elif word in FLAGS:
            found.append((word,))
        else:
            found.append((word, next(words, "")))
    return found
