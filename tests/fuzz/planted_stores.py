"""A target whose cases are records: many of them make a store, which then goes through every job."""

from __future__ import annotations

from tests.fuzz.targets import Target
from tests.fuzz.whole_jobs import WorkFolder, batches


class PlantedStores(Target):
    """Stores of growing sizes, whose records are written into the log directly.

    `finish` takes the records since the last store through the jobs, and sets their count to zero.

    Args:
        small: number of records in a small store, after the largest has been tried.
    """

    def __init__(self, small: int) -> None:
        self._store = WorkFolder()
        self._batches = batches(small)
        self._batch = next(self._batches)
        self._count = 0

    def try_one(self) -> None:
        """Plant one more record; at the end of a batch, run all jobs on the batch."""
        self._count += 1
        if self._count == self._batch:
            self.finish()
            self._batch = next(self._batches)

    def close(self) -> None:
        """Delete the store."""
        self._store.remove()
