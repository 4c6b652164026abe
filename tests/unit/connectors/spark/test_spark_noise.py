"""Lines of Spark's standard error that reach the user."""

from __future__ import annotations

import pytest

from commitlake.connectors.spark.jvm import filter_noise

HEAD = "Traceback (most recent call last):\n"
MANAGER = '  File "/site-packages/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 262, in manager\n'
WORKER = '  File "/site-packages/pyspark/python/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker\n'
OURS = '  File "/commitlake/connectors/commitlog/decode.py", line 7, in read_batch\n    write(batch)\n    ^^^^^\n'
BROKEN = "BrokenPipeError: [Errno 32] Broken pipe\n"
WARNING = "WARNING: Using incubator modules: jdk.incubator.vector\n"


@pytest.mark.parametrize("noise", [[WARNING], [HEAD, MANAGER, WORKER, BROKEN], [HEAD, MANAGER, WORKER, BROKEN] * 2])
def test_noise_between_other_lines_is_removed(noise: list[str]) -> None:
    assert list(filter_noise(["one\n", *noise, "two\n", *noise])) == ["one\n", "two\n"]


@pytest.mark.parametrize(
    "said",
    [
        [HEAD, MANAGER, *OURS.splitlines(keepends=True), BROKEN],
        [HEAD, MANAGER, WORKER, "MemoryError\n"],
        [HEAD, MANAGER, WORKER],
        [HEAD, BROKEN],
        [BROKEN],
        ["  indented\n", WORKER],
    ],
)
def test_all_other_lines_are_passed_on(said: list[str]) -> None:
    assert list(filter_noise(said)) == said
    assert list(filter_noise([*said, "and\n", "more\n"])) == [*said, "and\n", "more\n"]
