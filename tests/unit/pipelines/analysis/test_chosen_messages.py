"""Places of the messages that an analyst's table names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from commitlake.pipelines.analysis.chosen_messages import read_chosen_places
from commitlake.schemas.errors import UsageError

FRAME = pa.table({"broker": ["b", "a", "b"], "own": [1, 2, 3], "physical_offset": [300, 0, 100]})


def offsets(frame: Any) -> dict[str, list[int]]:
    return {broker: found.tolist() for broker, found in read_chosen_places(frame).items()}


def test_places_are_sorted_by_store() -> None:
    assert offsets(FRAME) == {"b": [100, 300], "a": [0]}
    assert offsets(FRAME.slice(0, 0)) == {}


def test_other_types_of_the_same_values_are_accepted() -> None:
    encoded = FRAME.set_column(0, "broker", FRAME.column("broker").dictionary_encode())
    assert offsets(encoded) == offsets(FRAME)
    small = FRAME.set_column(2, "physical_offset", FRAME.column("physical_offset").cast(pa.int32()))
    assert offsets(small.set_column(0, "broker", FRAME.column("broker").cast(pa.large_string()))) == offsets(FRAME)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (FRAME.select(["broker"]), "expected one column 'physical_offset', found none"),
        (FRAME.append_column("broker", FRAME.column(0)), "expected one column 'broker', found 2"),
        (pa.concat_tables([FRAME, FRAME.slice(2)]), "found 1 row more of store 'b', such as of physical_offset 100"),
        (pa.table({"broker": ["a", None], "physical_offset": [1, 2]}), "column broker: expected no null, found 1"),
        (pa.table({"broker": ["a"], "physical_offset": [None]}).cast(
            pa.schema([("broker", pa.string()), ("physical_offset", pa.int64())])
        ), "column physical_offset: expected no null, found 1"),
        (pa.table({"broker": [1], "physical_offset": [1]}), "column broker: expected texts, found the type int64"),
        (pa.table({"broker": ["a"], "physical_offset": [1.0]}), "expected whole numbers, found the type double"),
        ([{"broker": "a"}], "expected a DataFrame of Spark or a pyarrow.Table, found list"),
    ],
)  # fmt: skip
def test_other_tables_are_refused(frame: Any, text: str) -> None:
    with pytest.raises(UsageError, match=f"^frame: .*{text}"):
        read_chosen_places(frame)
