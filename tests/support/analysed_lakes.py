"""A lake for questions of analysts, and the rows of their answers, from either engine."""

from __future__ import annotations

import datetime
import functools
import random
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from commitlake.schemas.tables.rates import RATE_COUNTS, RATE_GROUPS
from commitlake.schemas.times import EPOCH, parse_iso
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BODIES = {
    "json": b'{"amount": 12.5, "currency": "EUR"}',
    "text": "bezahlt: 5 €".encode(),
    "not-utf8": b"\xff\xfe",
    "nan": b'{"amount": NaN}',
    "nested": b"[" * 100_000,
    "empty": b"",
    "zlib": zlib.compress(b'{"amount": 1}'),
    "broken-zlib": b'{"amount": 1}',
    "long-number": b"1" * 5000,  # more digits than Python converts
}
"""Bodies, by the tags of their messages."""


def analysed_lake(folder: Path) -> GrowingLake:
    """Return a lake of two runs: a message with each of `BODIES`, one each 50 seconds, in two topics."""
    growing = GrowingLake(folder)
    messages = [
        new_message(
            number,
            topic=("orders", "payments")[number % 2],
            queue_id=number % 3,
            body=body,
            sys_flag=COMPRESSED | 0x300 if tag.endswith("zlib") else 0,
            properties=(("TAGS", tag), ("KEYS", f"order-{number % 4}"), ("UNIQ_KEY", f"U{number}"), ("PGROUP", "shop")),
            born_timestamp=MIDNIGHT_MS + 50_000 * number,
        )
        for number, (tag, body) in enumerate(BODIES.items())
    ]
    for part in (messages[:5], messages[5:]):
        growing.write(part, lambda _: 17)
        growing.archive()
    return growing


def rows_of(frame: pa.Table | DataFrame) -> list[dict[str, Any]]:
    """Return the rows of an answer, sorted."""
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    return sorted(table.to_pylist(), key=repr)


# --- random lakes, and questions on rates ---

LAKES = 3
_SPAN_MS = 720_000
_GROUPS = {"queue": "queue_id", "tag": "tags"}
_COMMITTED = 8


def random_lake(seed: int) -> GrowingLake:
    """Return a lake of two runs and twelve minutes, with messages of all kinds that rates count."""
    return _random_lake(seed)[0]


@functools.cache
def _random_lake(seed: int) -> tuple[GrowingLake, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="commitlake-lake-")
    growing, chance = GrowingLake(Path(folder.name)), random.Random(seed)
    for _ in range(2):
        messages = []
        for number in range(40):
            properties = {"UNIQ_KEY": f"{seed:08X}{number:08X}", "KEYS": f"order-{number % 5}"}
            if chance.random() < 0.7:
                properties["TAGS"] = chance.choice(("paid", "it's"))
            if chance.random() < 0.5:
                properties["PGROUP"] = chance.choice(("shop", "billing"))
            if chance.random() < 0.5:
                properties["TRANSACTION_CHECK_TIMES"] = "1"
            message = new_message(
                number,
                topic=chance.choice(("orders", "it's \\ 订单", "%DLQ%billing", "%RETRY%billing", HALF_TOPIC)),
                queue_id=number % 2,
                sys_flag=chance.choice((0, _COMMITTED)),
                properties=tuple(properties.items()),
                born_timestamp=MIDNIGHT_MS + chance.choice((0, 60_000, chance.randrange(_SPAN_MS))),
            )
            messages.append(message)
        growing.write(messages, lambda _: chance.choice((-1, 0, 0, 999, 60_000)))
        growing.archive()
    return growing, folder


def _some(values: Iterable[Any]) -> st.SearchStrategy[list[Any] | None]:
    return st.none() | st.lists(st.sampled_from(list(values)), min_size=1, max_size=2)


_TIMES = st.none() | st.builds(
    lambda ms: (EPOCH + datetime.timedelta(milliseconds=MIDNIGHT_MS + ms)).isoformat(),
    st.sampled_from((-60_000, 0, 60_000, 60_001, 299_999, 300_000)) | st.integers(0, _SPAN_MS),
)
QUESTIONS = st.fixed_dictionaries(
    {
        "by": st.lists(st.sampled_from(RATE_GROUPS.names), unique=True, max_size=3),
        "window": st.sampled_from(("1s", "30 seconds", "1 minute", "90s", "5 minutes", "7m", "1 day")),
    },
    optional={
        "topic": _some(("orders", "it's \\ 订单", "%DLQ%billing")),
        "queue": _some((0, 1)),
        "tag": _some(("paid", "it's")),
        "key": _some(("order-1", "order-2")),
        "kind": _some(("normal", "half", "retry")),
        "since": _TIMES,
        "until": _TIMES,
    },
)
"""Arguments of `AnalysisLake.tps`."""


def expected_rates(messages: Iterable[Mapping[str, Any]], question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of `AnalysisLake.tps` for rows of `messages`, counted one by one."""
    count, unit = re.fullmatch(r"(\d+) ?(.).*", question["window"]).groups()  # type: ignore[union-attr]
    length = datetime.timedelta(seconds=int(count) * {"s": 1, "m": 60, "d": 86_400}[unit])
    since, until = (None if question.get(name) is None else parse_iso(question[name]) for name in ("since", "until"))
    counted: dict[tuple[Any, ...], Counter[str]] = {}
    for row in messages:
        stored = row["store_timestamp"]
        if (since is not None and stored < since) or (until is not None and stored >= until):
            continue
        if not _is_chosen(row, question):
            continue
        key = (*(_group(row, name) for name in question["by"]), EPOCH + (stored - EPOCH) // length * length)
        counted.setdefault(key, Counter()).update(_counts(row))
    rows = []
    for key, counts in counted.items():
        start = key[-1]
        seconds = (min(until or start + length, start + length) - max(since or start, start)).total_seconds()
        row = dict(zip([*question["by"], "window_start"], key, strict=True))
        row |= {name: counts[name] for name in RATE_COUNTS.names} | {"seconds": seconds}
        rows.append(row | {f"{name}_per_s": counts[name] / seconds for name in ("messages", "bytes")})
    return sorted(rows, key=repr)


def _is_chosen(row: Mapping[str, Any], question: Mapping[str, Any]) -> bool:
    columns = {"topic": "topic", "queue": "queue_id", "tag": "tags", "kind": "kind"}
    wanted = question.get("key")
    return all(not question.get(name) or row[column] in question[name] for name, column in columns.items()) and (
        not wanted or not set(wanted).isdisjoint(row["keys"] or ())
    )


def _group(row: Mapping[str, Any], name: str) -> Any:
    if name == "producer_host":
        return row["born_host"].rpartition(":")[0]
    return row[_GROUPS.get(name, name)]


def _counts(row: Mapping[str, Any]) -> dict[str, int]:
    kind = row["kind"]
    return {
        "messages": 1,
        "bytes": row["size"],
        "sent": kind == "normal",
        "retries": kind == "retry",
        "dead_letters": kind == "dlq",
        "prepared": kind == "half" and "TRANSACTION_CHECK_TIMES" not in dict(row["properties"]),
        "committed": kind == "normal" and row["sys_flag"] & 12 == _COMMITTED,
        "clock_skew": row["store_timestamp"] < row["born_timestamp"],
    }


# --- dead letters ---

DEAD = {
    "billing": (("RETRY_TOPIC", "orders"), ("exception", "no such account"), ("KEYS", "order-1")),
    "shipping": (("DLQ_ORIGIN_TOPIC", "it's"), ("REPLAY_ID", "20261117-142003-5f2a1c")),
    "audit": (),
}
"""The properties of a dead letter of each group."""


def dead_letters_lake(folder: Path) -> GrowingLake:
    """Return a lake with a dead letter for each of `DEAD`, and one other message."""
    growing = GrowingLake(folder)
    letters = [
        new_message(
            number,
            topic=f"%DLQ%{group}",
            queue_id=0,
            body=b'{"amount": 7}',
            reconsume_times=16,
            properties=properties,
            born_timestamp=MIDNIGHT_MS + 60_000 * number,
        )
        for number, (group, properties) in enumerate(DEAD.items())
    ]
    growing.write([new_message(9, topic="orders", born_timestamp=MIDNIGHT_MS), *letters])
    growing.archive()
    return growing
