"""Only data files that may refer to erased messages are opened."""

from __future__ import annotations

import numpy as np
import pytest

from commitlake.connectors.lake.erasures import ErasedMessages, ErasedOffsets
from commitlake.pipelines.erasure.selection import _file_may_refer_to_messages

NONE = np.empty(0, np.int64)
MESSAGES = ErasedMessages(
    1,
    ("1",),
    (1,),
    {"a": ErasedOffsets(NONE, NONE), "b": ErasedOffsets(np.array([50]), np.array([0]))},
)


@pytest.mark.parametrize(
    ("brokers", "offsets", "expected"),
    [
        (("a", "c"), (0, 100), True),
        (("a", "c"), (51, 100), False),
        (("c", "d"), (0, 100), False),
        (("a", "a"), (0, 100), False),
        ((None, None), (0, 100), True),
        (("a", "c"), (None, None), True),
        (("a", "a"), (None, None), False),
    ],
)
def test_a_file_is_opened_if_any_broker_has_a_message_within_its_bounds(
    brokers: tuple[str | None, str | None], offsets: tuple[int | None, int | None], expected: bool
) -> None:
    least, greatest = ({"broker": brokers[side], "physical_offset": offsets[side]} for side in (0, 1))
    assert _file_may_refer_to_messages({"min": least, "max": greatest}, MESSAGES, "") == expected
