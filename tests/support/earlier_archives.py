"""Archives in the form of earlier versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from commitlake.pipelines.topic_minutes.minute_counts import MinutesFiles


@contextmanager
def without_topic_minutes() -> Iterator[None]:
    """Archive like a version without the table `topic_minutes`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MinutesFiles, "finish_files", lambda _: [])
        yield
