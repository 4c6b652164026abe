"""The suites on a profile, by great_expectations: on the driver, in memory, without a word to anybody.

great_expectations takes three seconds to load: `prepare` does that beside the tasks.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pandas as pd
import pyarrow as pa

from commitlake.pipelines.quality.errors import JudgeError
from commitlake.pipelines.quality.frames import KEYS, RunFacts, broker_sums, brokers_of, topics_of, windows_of
from commitlake.pipelines.quality.report import Judgement, QualityReport
from commitlake.pipelines.quality.stretches import STRETCH_ROWS, joined, stretches_of
from commitlake.schemas.quality.expectation import Expectation, Grain, Suite
from commitlake.schemas.quality.suites import SUITES

_EXAMPLES = 10
_NAME = "name"
_LOADING = threading.Lock()
JudgeFrame = Callable[[Sequence[Suite], pd.DataFrame], list[list[Judgement]]]
"""Judges a frame by suites, as `judge_by_suites` does."""
# The second has a level of its own, and tells everybody of a folder that it makes.
_TALKATIVE = ("great_expectations", "great_expectations.data_context.types.base")
_OLD_NAMES = {"sre_constants": "re._constants", "sre_parse": "re._parser"}


def prepare() -> threading.Thread:
    """Begin to load great_expectations; `judge` waits for it. What goes wrong here is told there."""
    thread = threading.Thread(target=load_quietly, name="load great_expectations")
    thread.start()
    return thread


def judge(profile: pa.Table, suites: Iterable[Suite] = SUITES, facts: RunFacts | None = None) -> QualityReport:
    """Judge a run's profile.

    Args:
        profile: a table of `PROFILE`, merged over all tasks.
        suites: what is expected.
        facts: what else the run knows. Without it, gaps in queues are taken as unexplained.

    Returns:
        A judgement for each expectation. One of a table without rows is met.

    Raises:
        JudgeError: if an expectation cannot be judged: no such column, or an error inside great_expectations.
        ProfileError: for a table that is no profile.
    """
    judging = Judging(suites, facts)
    for stretch in stretches_of(profile):
        judging.add(stretch)
    return judging.report()


class Judging:
    """A judgement that is made stretch by stretch, so that no more than one is in memory.

    What is kept of a stretch is its judgements, sums for each broker, and the sums of its topics until these are as
    many as a stretch has rows.

    Args:
        suites: what is expected.
        facts: what else the run knows; as for `judge`.
        judge_frame: what judges a frame; this process where not given.
    """

    def __init__(
        self, suites: Iterable[Suite] = SUITES, facts: RunFacts | None = None, judge_frame: JudgeFrame | None = None
    ) -> None:
        self._facts, self._suites = facts or RunFacts(), list(suites)
        self._judge_frame = judge_frame or judge_by_suites
        self._found: dict[str, list[list[Judgement]]] = {suite.name: [] for suite in self._suites}
        self._topics: list[pd.DataFrame] = []
        self._brokers: list[pd.DataFrame] = []

    def add(self, stretch: pa.Table) -> None:
        """Judge the windows of some topics.

        Args:
            stretch: a table of `PROFILE`, merged: all windows of each of its topics.

        Raises:
            JudgeError: as for `judge`.
            ProfileError: for a table that is no profile.
        """
        windows = windows_of(stretch, self._facts)
        self._judge(Grain.WINDOW, windows)
        self._topics.append(topics_of(windows))
        del windows
        # What great_expectations keeps of a table, with copies of it, refers to itself.
        gc.collect()
        if sum(map(len, self._topics)) >= STRETCH_ROWS:
            self._judge_topics()

    def report(self) -> QualityReport:
        """The judgement on all stretches; at least one, if only an empty one, was added.

        Raises:
            JudgeError: as for `judge`.
        """
        if self._topics:
            self._judge_topics()
        self._judge(Grain.BROKER, brokers_of(pd.concat(self._brokers, ignore_index=True), self._facts))
        judgements = [
            joined(parts, _EXAMPLES) for suite in self._suites for parts in zip(*self._found[suite.name], strict=True)
        ]
        return QualityReport(judgements, self._facts.now)

    def _judge_topics(self) -> None:
        topics = pd.concat(self._topics, ignore_index=True) if len(self._topics) > 1 else self._topics[0]
        self._topics = []
        self._judge(Grain.TOPIC, topics)
        self._brokers.append(broker_sums(topics))

    def _judge(self, grain: Grain, frame: pd.DataFrame) -> None:
        suites = [suite for suite in self._suites if suite.grain is grain]
        for suite, judgements in zip(suites, self._judge_frame(suites, frame), strict=True):
            self._found[suite.name].append(judgements)


def judge_by_suites(suites: Sequence[Suite], frame: pd.DataFrame) -> list[list[Judgement]]:
    """Judge one frame by suites that are made for such; the judgements of each.

    Raises:
        JudgeError: as for `judge`.
    """
    source = _open_source()  # it keeps what it has judged, and goes with it
    return [_judge_suite(source, suite, frame) for suite in suites]


def _judge_suite(source: Any, suite: Suite, frame: pd.DataFrame) -> list[Judgement]:
    keys = KEYS[suite.grain]
    wanted = dict.fromkeys([*keys, *(name for each in suite.expectations for name in each.columns)])
    absent = [name for name in wanted if name not in frame]
    if absent:
        have = ", ".join(map(str, frame.columns))
        raise JudgeError(f"suite {suite.name}: a {suite.grain} has no column {', '.join(absent)}; it has {have}")
    if frame.empty:
        return [Judgement(suite.name, each, True, None, 0, 0) for each in suite.expectations]
    # All of a table is copied for each expectation.
    results = _validate(source, suite, frame[list(wanted)], keys)
    return [_judgement(suite, each, results[each.name], frame, keys) for each in suite.expectations]


def _judgement(
    suite: Suite, expectation: Expectation, result: Mapping[str, Any], frame: pd.DataFrame, keys: Sequence[str]
) -> Judgement:
    name, success, found = f"{suite.name}.{expectation.name}", bool(result["success"]), result["result"]
    _check(name, success, found, result["exception_info"])
    if "unexpected_count" in found:
        unexpected, examples = int(found["unexpected_count"]), found.get("partial_unexpected_index_list") or []
    else:
        outside = _outside(expectation, frame)
        unexpected = 0 if success else len(outside)
        shown = outside[[*keys, *expectation.columns]].head(_EXAMPLES)
        examples = [] if success else [_plain(row) for row in shown.to_dict("records")]
    observed = found.get("observed_value")
    return Judgement(suite.name, expectation, success, observed, len(frame), unexpected, tuple(examples))


def _check(name: str, success: bool, found: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """An exception, or no answer, is neither bad data nor good.

    Raises:
        JudgeError: for these.
    """
    # Of one metric or of several, by their names.
    exceptions = [told] if "raised_exception" in told else list(told.values())
    for each in exceptions:
        if each.get("raised_exception"):
            raise JudgeError(f"{name} could not be judged: {each.get('exception_message')}")
    if not found and not success:
        raise JudgeError(f"{name} could not be judged: great_expectations gave no result")


def _outside(expectation: Expectation, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that a sum, a least or a greatest value fails for."""
    column = frame[str(expectation.kwargs["column"])]
    wrong = pd.Series(False, index=frame.index)
    if (least := expectation.kwargs.get("min_value")) is not None:
        wrong |= column < least
    if (most := expectation.kwargs.get("max_value")) is not None:
        wrong |= column > most
    return frame[wrong]


def _plain(row: Mapping[Any, Any]) -> dict[str, object]:
    """Values that JSON knows."""
    return {str(name): None if pd.isna(value) else _scalar(value) for name, value in row.items()}


def _scalar(value: Any) -> object:
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value.item() if hasattr(value, "item") else value


def load_quietly() -> None:
    """Load great_expectations; what goes wrong here is told by whoever needs it."""
    with suppress(Exception):
        _load()


def _load() -> Any:
    # It looks at this when it is imported, and whenever a context is made.
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    # It imports parts of `re` by old names, with warnings, which are errors to those who want it so.
    for old, new in _OLD_NAMES.items():
        sys.modules.setdefault(old, importlib.import_module(new))
    with _LOADING, _as_a_file():
        import great_expectations as gx  # noqa: PLC0415 (three seconds, and only where somebody judges)
        from great_expectations.data_context.types.base import ProgressBarsConfig  # noqa: F401, PLC0415 (likewise)

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
    return gx


@contextmanager
def _as_a_file() -> Iterator[None]:
    """It looks for pyspark.sql.connect, which takes a program without a file (`python -c`) for doctests and ends it."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None or hasattr(main, "__file__") or hasattr(sys, "ps1"):
        yield
        return
    main.__file__ = ""
    try:
        yield
    finally:
        del main.__file__


def _open_source() -> Any:
    """A place of great_expectations for tables, in memory."""
    gx = _load()
    try:
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
        return context.data_sources.add_pandas("profile")
    except Exception as error:
        raise JudgeError(f"great_expectations {gx.__version__} could not be set up: {error}") from error


def _validate(source: Any, suite: Suite, frame: pd.DataFrame, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """What great_expectations says of each expectation, by its name."""
    gx = _load()
    try:
        asset = source.add_dataframe_asset(suite.name)
        batch = asset.add_batch_definition_whole_dataframe(suite.name).get_batch({"dataframe": frame})
        expectations = [_of_theirs(gx, each) for each in suite.expectations]
        told = batch.validate(
            gx.ExpectationSuite(name=suite.name, expectations=expectations),
            result_format={
                "result_format": "SUMMARY",
                "unexpected_index_column_names": list(keys),
                "partial_unexpected_count": _EXAMPLES,
            },
        )
    except Exception as error:
        raise JudgeError(f"suite {suite.name} could not be judged: {error}") from error
    results = [result.to_json_dict() for result in told.results]
    return {result["expectation_config"]["meta"][_NAME]: result for result in results}


def _of_theirs(gx: Any, expectation: Expectation) -> Any:
    known = getattr(gx.expectations, expectation.type, None)
    if known is None:
        raise JudgeError(f"great_expectations {gx.__version__} has no {expectation.type}")
    return known(**expectation.kwargs, severity=str(expectation.severity), meta={_NAME: expectation.name})
