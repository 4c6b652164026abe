"""The journal compared with the CommitLog: the same number of messages with the same bodies, in either layout."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from pyspark.sql import SparkSession

from commitlake import register
from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.schemas.layouts.jmq.journal import NewJournalMessage
from tests.benchmarks.asked import AskedProcess
from tests.benchmarks.runs import Name, Steps
from tests.benchmarks.spark_runs import SparkRuns
from tests.support.corpus import Corpus, json_bodies, shop_batches

JOURNAL = "j"
_OPTIONS = JournalOptions(compression_level=0)  # compression would leave a third of the bytes to read
_DONE = "messages.json"
_KERNEL_PASSES = ("hop and CRC", "all columns")


def make_journal(folder: Path, corpus: Corpus) -> Path:
    """Return a store in JMQ's layout with the messages of a corpus; reuse that of an earlier run.

    Args:
        folder: folder in which the store is created and kept.
        corpus: store with the messages.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    store = folder / f"journal-{corpus.messages}-of-{corpus.body_bytes}-{version}"
    if not (store / _DONE).exists():
        shutil.rmtree(store, ignore_errors=True)
        with JournalStore.open(store, _OPTIONS) as opened:
            for batch in _batches(corpus.body_bytes, corpus.messages):
                opened.put_batch(batch)
        (store / _DONE).write_text(json.dumps(corpus.messages))
    return store


def _batches(body_bytes: int, messages: int) -> Iterator[list[NewJournalMessage]]:
    number = 0
    for batch in shop_batches(json_bodies(body_bytes)):
        made = []
        for message in islice(batch, messages - number):
            properties = dict(message.properties)
            made.append(
                NewJournalMessage(
                    message.topic,
                    message.body,
                    message.born_timestamp,
                    message.born_host,
                    app="shop",
                    business_id=properties["KEYS"],
                    business_tag=number % 5,
                    properties=(("city", properties["city"]), ("tier", properties["tier"])),
                )
            )
            number += 1
        if made:
            yield made
        if number == messages:
            return


def kernel_steps(stack: ExitStack, corpus: Corpus, journal: Path) -> Steps:
    """Return passes of one core over both stores, each in a separate process."""
    steps: Steps = []
    for layout, store in (("CommitLog", corpus.store), ("journal", journal)):
        process = stack.enter_context(AskedProcess([sys.executable, "-m", "tests.benchmarks.reading", str(store)]))
        steps += [
            (Name(JOURNAL, f"{layout}, {each}", corpus.body_bytes), process.asking(each)) for each in _KERNEL_PASSES
        ]
    return steps


def spark_steps(spark: SparkSession, corpus: Corpus, journal: Path, work: Path) -> Steps:
    """Return reads and archive runs of both stores in a Spark session."""
    register(spark)
    body, count = corpus.body_bytes, corpus.messages
    steps: Steps = []
    for layout, source, store in (("CommitLog", "commitlog", corpus.store), ("journal", "journal", journal)):
        runs = SparkRuns(spark, store, work / source, count, source)
        steps += [
            (Name(JOURNAL, f"{layout}, Spark reads, no bodies", body), runs.read),
            (Name(JOURNAL, f"{layout}, archive", body), runs.archive),
        ]
    return steps
