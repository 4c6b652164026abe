"""The suite of measurements and comparisons.

The kernel and Java run first, in separate processes. One Spark session then runs the rest, so that its threads do not
disturb the first part.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from commitlake.jobs.arguments.runner import get_spark_session
from tests.benchmarks import java, reading
from tests.benchmarks.asked import AskedProcess
from tests.benchmarks.journals import JOURNAL, kernel_steps, make_journal, spark_steps
from tests.benchmarks.naive import cut_sample
from tests.benchmarks.packs import Compression, compression_pool
from tests.benchmarks.runs import Figures, Name, Steps, take_turns
from tests.benchmarks.spark_runs import SparkRuns
from tests.benchmarks.targets import GROWTH, MAIN_BODY, WORKER_MIB
from tests.support.corpus import Corpus, make_corpora

SAMPLE_BYTES = 128 << 20
"""Size of one task of this project's source; in a small session, a UDF's task can hold it, but not a segment."""

_KERNEL, _SPARK = "ab", "cdefgj"
# Java's optimizing compiler needs some hundred thousand records, and recompiles code later.
_LEAST_WARM_UPS = 3
_WARM_UP_GIB = 1

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Measurements of a run.

    Attributes:
        gib: size of the stores.
        bodies: sizes of bodies, one store for each.
        factors: sizes of the growing store, in multiples of the others'.
        runs: passes that count.
        sections: letters of the parts to measure.
    """

    gib: float
    bodies: Sequence[int]
    factors: Sequence[int]
    runs: int
    sections: str

    @property
    def main_body(self) -> int:
        """Body size of measurements that use a single size."""
        return MAIN_BODY if MAIN_BODY in self.bodies else self.bodies[0]


def measure(plan: Plan, folder: Path, work: Path, tell: Tell) -> Figures:
    """Run all measurements of a plan.

    Args:
        plan: measurements to run.
        folder: folder in which stores are created and kept.
        work: empty folder for everything else.
        tell: called with the name of each step.
    """
    tell("making stores")
    corpora = all_corpora(plan, folder)
    figures: Figures = {}
    if set(plan.sections) & set(_KERNEL):
        for corpus in _smallest(corpora):
            tell(f"kernel and Java, bodies of {corpus.body_bytes}")
            figures |= _measure_kernel(plan, corpus, work / f"java-{corpus.body_bytes}")
    journal = None
    if JOURNAL in plan.sections:
        main = _main(plan, corpora)
        tell("the journal beside the CommitLog, one core")
        journal = make_journal(folder, main)
        figures |= _measure_journal_kernel(plan, main, journal)
    if set(plan.sections) & set(_SPARK):
        spark = get_spark_session("bench")
        try:
            figures |= _measure_spark(spark, plan, corpora, work, tell)
            if journal is not None:
                tell("the journal beside the CommitLog, Spark")
                steps = spark_steps(spark, main, journal, work / "journal")
                figures |= take_turns(steps, plan.runs)
        finally:
            spark.stop()
    return figures


def all_corpora(plan: Plan, folder: Path) -> list[Corpus]:
    """Return the stores of a plan; they are written in parallel, because this is slow in Python."""
    growing = plan.factors if GROWTH in plan.sections else ()
    factors = {body: sorted({1, *growing}) if body == plan.main_body else [1] for body in plan.bodies}
    # The body size with the largest store first.
    order = sorted(plan.bodies, key=lambda body: (-max(factors[body]), body))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        made = [pool.submit(make_corpora, folder, plan.gib, body, factors[body]) for body in order]
        by_body = dict(zip(order, (each.result() for each in made), strict=True))
    return [corpus for body in plan.bodies for corpus in by_body[body]]


def _smallest(corpora: Sequence[Corpus]) -> Iterator[Corpus]:
    return (corpus for corpus in corpora if corpus.factor == 1)


def _measure_kernel(plan: Plan, corpus: Corpus, work: Path) -> Figures:
    with ExitStack() as stack:
        steps: Steps = []
        if "a" in plan.sections:
            command = [sys.executable, "-m", "tests.benchmarks.reading", str(corpus.store)]
            kernel = stack.enter_context(AskedProcess(command))
            steps += [(Name("a", name, corpus.body_bytes), kernel.asking(name)) for name in reading.PASSES]
        if "b" in plan.sections:
            program = stack.enter_context(java.decode_log(corpus.store, work))
            steps += [(Name("b", what, corpus.body_bytes), program.asking(name)) for name, what in java.PASSES.items()]
        warm_ups = max(_LEAST_WARM_UPS, math.ceil(_WARM_UP_GIB / plan.gib) if "b" in plan.sections else 0)
        return take_turns(steps, plan.runs, warm_ups)


def _main(plan: Plan, corpora: Sequence[Corpus]) -> Corpus:
    return next(corpus for corpus in _smallest(corpora) if corpus.body_bytes == plan.main_body)


def _measure_journal_kernel(plan: Plan, corpus: Corpus, journal: Path) -> Figures:
    with ExitStack() as stack:
        return take_turns(kernel_steps(stack, corpus, journal), plan.runs)


def _measure_spark(spark: SparkSession, plan: Plan, corpora: Sequence[Corpus], work: Path, tell: Tell) -> Figures:
    figures: Figures = {}
    with compression_pool() as pool:
        for corpus in _smallest(corpora):
            if set(plan.sections) & set("cdf"):
                tell(f"Spark, bodies of {corpus.body_bytes}")
                figures |= _measure_store(spark, pool, plan, corpus, work / f"spark-{corpus.body_bytes}")
    main = [corpus for corpus in corpora if corpus.body_bytes == plan.main_body]
    if GROWTH in plan.sections:
        tell("growth")
        figures |= _measure_growth(spark, plan, main, work)
    if "e" in plan.sections:
        # Last, because memory that the UDF leaves in the workers would be counted as theirs.
        tell("a UDF on whole files")
        figures |= _measure_sample(spark, plan, main[0], work / "sample")
    return figures


def _measure_store(spark: SparkSession, pool: ProcessPoolExecutor, plan: Plan, corpus: Corpus, work: Path) -> Figures:
    runs = SparkRuns(spark, corpus.store, work, corpus.messages)
    compression = Compression(pool, corpus.store)
    body = corpus.body_bytes
    steps: Steps = [
        (Name("c", "read, no bodies", body), runs.read),
        (Name("c", "read, bodies as stored", body), lambda: runs.read("stored")),
        (Name("d", "archive", body), runs.archive),
        (Name("d", "archive, judged, with keys", body), lambda: runs.archive(everything=True)),
        (Name("f", "rows into Delta", body), runs.write_rows),
        (Name("f", "the same rows only read", body), runs.read_rows),
        (Name("f", "bodies by zstd", body), compression.run),
    ]
    # The JVM compiles during two rounds.
    figures = take_turns([step for step in steps if step[0].section in plan.sections], plan.runs, warm_ups=2)
    for name, figure in figures.items():
        if name.section == "d":
            figure.notes |= archive_notes(runs)
        if name.what == "bodies by zstd":
            figure.notes["times smaller"] = compression.ratio
    return figures


def archive_notes(runs: SparkRuns) -> dict[str, float]:
    """Return notes on an archive, in addition to its time."""
    disk = {f"{name} MiB": size / (1 << 20) for name, size in runs.lake_bytes.items() if size}
    return {WORKER_MIB: runs.worker_mib, "peak MiB": runs.worker_peak_mib, **disk}


def _measure_sample(spark: SparkSession, plan: Plan, corpus: Corpus, work: Path) -> Figures:
    cut_sample(corpus.store, work / "store", SAMPLE_BYTES)
    messages = spark.read.format("commitlog").load(str(work / "store")).count()
    runs = SparkRuns(spark, work / "store", work, messages)
    steps: Steps = [
        (Name("e", "read, no bodies", corpus.body_bytes), lambda: runs.after_collecting(runs.read)),
        (Name("e", "binaryFile and a UDF", corpus.body_bytes), lambda: runs.after_collecting(runs.read_naively)),
    ]
    found = runs.count_naively()
    assert found == messages, f"expected {messages} messages, the UDF found {found}"
    # A pass over a sample takes a quarter of a second, and the JVM has compiled its code after a few.
    return take_turns(steps, plan.runs, warm_ups=3)


def _measure_growth(spark: SparkSession, plan: Plan, corpora: Sequence[Corpus], work: Path) -> Figures:
    by_factor = {
        corpus.factor: SparkRuns(spark, corpus.store, work / f"growth-{corpus.factor}", corpus.messages)
        for corpus in corpora
        if corpus.factor in plan.factors
    }
    body = corpora[0].body_bytes
    # A warm-up with one size is enough for all sizes.
    first = by_factor[min(by_factor)]
    first.read()
    first.archive()
    steps: Steps = [
        (Name(GROWTH, what, body, factor), step)
        for factor, runs in by_factor.items()
        for what, step in (("read, no bodies", runs.read), ("archive", runs.archive))
    ]
    figures = take_turns(steps, plan.runs, warm_ups=0)
    for factor, runs in by_factor.items():
        figures[Name(GROWTH, "archive", body, factor)].notes |= archive_notes(runs)
    return figures
