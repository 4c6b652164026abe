"""Runs suites on one frame by great_expectations, in memory and without telemetry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from commitlake.pipelines.quality.great_expectations_loading import load_great_expectations
from commitlake.pipelines.quality.profile_columns import QualityError
from commitlake.pipelines.quality.report import MAX_DAMAGED_QUEUES, MAX_EXAMPLES, Judgement
from commitlake.schemas.quality.expectation import Expectation, Severity, Suite
from commitlake.schemas.tables.profile import QUEUE_KEYS

_NAME = "name"


class FrameChecker:
    """Checks data frames by expectation suites, with great_expectations.

    great_expectations keeps a copy of every frame and all results until the judge is dropped. A judge serves several
    small frames, because great_expectations writes its whole configuration as YAML whenever one is set up.
    """

    def __init__(self) -> None:
        self._batches: Any = None

    def judge_frame(
        self, suites: Sequence[Suite], frame: pd.DataFrame, key_columns: Sequence[str]
    ) -> list[list[Judgement]]:
        """Check a data frame by several suites, and return the results of each suite.

        Args:
            frame: a row for each window, topic or broker.
            key_columns: columns that identify a row.

        Raises:
            QualityError: if an expectation cannot be evaluated: a column is missing, or great_expectations fails.
        """
        return [self._judge_suite(suite, frame, key_columns) for suite in suites]

    def _judge_suite(self, suite: Suite, frame: pd.DataFrame, key_columns: Sequence[str]) -> list[Judgement]:
        wanted = dict.fromkeys([*key_columns, *(name for each in suite.expectations for name in each.columns)])
        absent = [name for name in wanted if name not in frame]
        if absent:
            have = ", ".join(map(str, frame.columns))
            raise QualityError(
                f"suite {suite.name}: the expectations need the columns {', '.join(absent)}, which a {suite.grain} "
                f"does not have; it has {have}"
            )
        if frame.empty:
            return [Judgement(suite.name, each, True, None, 0, 0) for each in suite.expectations]
        if self._batches is None:
            self._batches = _make_frame_batch_classes()
        # The whole table is copied for each expectation.
        results = _run_frame_validation(self._batches, suite, frame[list(wanted)], key_columns)
        return [_to_judgement(suite, each, results[each.name], frame, key_columns) for each in suite.expectations]


def _to_judgement(
    suite: Suite, expectation: Expectation, result: Mapping[str, Any], frame: pd.DataFrame, key_columns: Sequence[str]
) -> Judgement:
    name, success, found = f"{suite.name}.{expectation.name}", bool(result["success"]), result["result"]
    _check_evaluated(name, success, found, result["exception_info"])
    unexpected: int = 0
    examples: Sequence[Any] = []
    if "unexpected_count" in found:
        unexpected, examples = int(found["unexpected_count"]), found.get("partial_unexpected_index_list") or []
    elif not success:
        outside = _rows_outside_bounds(expectation, frame)
        unexpected = len(outside)
        if expectation.severity is Severity.DAMAGE:
            # One example for each queue, because what follows from damage is decided queue by queue.
            outside = outside.drop_duplicates([key for key in key_columns if key in QUEUE_KEYS])
        shown = outside[[*key_columns, *expectation.columns]].head(MAX_DAMAGED_QUEUES)
        examples = [_to_json_types(row) for row in shown.to_dict("records")]
    observed = found.get("observed_value")
    judgement = Judgement(suite.name, expectation, success, observed, len(frame), unexpected)
    return replace(judgement, examples=tuple(examples[: judgement.max_examples]))


def _check_evaluated(
    name: str, is_success: bool, result_values: Mapping[str, Any], exception_info: Mapping[str, Any]
) -> None:
    """Raise an error if great_expectations could not evaluate an expectation."""
    # Of one metric, or of several by name.
    exceptions = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    for each in exceptions:
        if each.get("raised_exception"):
            raise QualityError(f"the expectation {name} could not be checked: {each.get('exception_message')}")
    if not result_values and not is_success:
        raise QualityError(f"the expectation {name} could not be checked: great_expectations returned no result")


def _rows_outside_bounds(expectation: Expectation, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose value is outside of an expectation's `min_value` and `max_value`."""
    column = frame[str(expectation.kwargs["column"])]
    wrong = pd.Series(False, index=frame.index)
    if (least := expectation.kwargs.get("min_value")) is not None:
        wrong |= column < least
    if (most := expectation.kwargs.get("max_value")) is not None:
        wrong |= column > most
    return frame[wrong]


def _to_json_types(row: Mapping[Any, Any]) -> dict[str, object]:
    """Convert the values of a row to types that JSON has."""
    return {str(name): None if pd.isna(value) else _to_json_scalar(value) for name, value in row.items()}


def _to_json_scalar(value: Any) -> object:
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    return value.item() if hasattr(value, "item") else value


def _make_frame_batch_classes() -> Any:
    """Return great_expectations' definition of batches that are whole data frames in memory."""
    gx = load_great_expectations()
    try:
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = gx.data_context.types.base.ProgressBarsConfig(globally=False)
        asset = context.data_sources.add_pandas("profile").add_dataframe_asset("frame")
        return asset.add_batch_definition_whole_dataframe("whole")
    except Exception as error:
        raise QualityError(f"great_expectations {gx.__version__} could not be set up: {error}") from error


def _run_frame_validation(
    batches: Any, suite: Suite, frame: pd.DataFrame, key_columns: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    """Validate a data frame by an expectation suite; return great_expectations' results by name."""
    gx = load_great_expectations()
    try:
        batch = batches.get_batch({"dataframe": frame})
        expectations = [_to_gx_expectation(gx, each) for each in suite.expectations]
        told = batch.validate(
            gx.ExpectationSuite(name=suite.name, expectations=expectations),
            result_format={
                "result_format": "SUMMARY",
                "unexpected_index_column_names": list(key_columns),
                "partial_unexpected_count": MAX_EXAMPLES,
            },
        )
    except Exception as error:
        raise QualityError(f"the expectations of suite {suite.name} could not be checked: {error}") from error
    results = [result.to_json_dict() for result in told.results]
    return {result["expectation_config"]["meta"][_NAME]: result for result in results}


def _to_gx_expectation(gx: Any, expectation: Expectation) -> Any:
    known = getattr(gx.expectations, expectation.type, None)
    if known is None:
        raise QualityError(
            f"great_expectations {gx.__version__} has no expectation {expectation.type}: install the version that "
            "CommitLake requires"
        )
    return known(**expectation.kwargs, meta={_NAME: expectation.name})
