"""Stores for measurements, with messages of a shop's producers, written by broker_lite.

Bodies are JSON of orders from a pool of distinct ones, which zstd compresses to about a third. The log contains each
body many times, but further apart than a compressor's frame of 256 KiB, so the repetition does not help it. Every
segment of a store is full, so the first segments of a store are a smaller store, and all sizes are made from the
largest one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host

GIB = 1 << 30
POOL_SIZE = 4096
_START_MS = 1_767_571_200_000  # 2026-01-05
_PRODUCER = Host.of("10.0.0.9", 50123)
_BATCH = 64
_CITIES = ("Berlin", "Hamburg", "München", "Köln", "Leipzig", "Wien", "Zürich", "Graz", "上海", "杭州")
_STATES = ("created", "reserved", "paid", "packed", "shipped", "delivered", "returned")
_WORDS = (
    "coffee", "kettle", "lamp", "chair", "wooden", "steel", "large", "small", "black", "white", "garden", "kitchen",
    "travel", "winter", "cotton", "organic", "classic", "portable", "set", "of", "two", "with", "lid", "and", "handle",
)  # fmt: skip
_DONE = "messages.json"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A store for measurements.

    Attributes:
        store: its folder.
        body_bytes: target size of a body.
        factor: its size, in multiples of the smallest store of the run.
        messages: number of its messages.
    """

    store: Path
    body_bytes: int
    factor: int
    messages: int


def json_bodies(body_bytes: int, count: int = POOL_SIZE, seed: int = 1) -> list[bytes]:
    """Return distinct JSON texts of approximately a given size.

    Args:
        body_bytes: target size.
        count: number of texts.
        seed: the same seed gives the same texts.
    """
    chance = random.Random(seed)
    return [_order(chance, round(body_bytes * chance.uniform(0.95, 1.05))) for _ in range(count)]


def _order(chance: random.Random, size: int) -> bytes:
    order: dict[str, object] = {
        "order": chance.randrange(10**9),
        "state": chance.choice(_STATES),
        "customer": f"{chance.getrandbits(48):012x}",
        "city": chance.choice(_CITIES),
    }
    head = _json(order)[:-1]
    room = size - len(head) - len(b',"items":[]}')
    items: list[bytes] = []
    while room > 0 and (item := _json(_item(chance))) and len(item) < room:
        items.append(item)
        room -= len(item) + 1
    text = head + b',"items":[' + b",".join(items) + b"]}"
    return _with_note(chance, text, size)


def _item(chance: random.Random) -> dict[str, object]:
    return {
        "sku": f"{chance.getrandbits(64):016x}",
        "name": " ".join(chance.choices(_WORDS, k=chance.randint(2, 4))),
        "quantity": chance.randint(1, 9),
        "price": chance.randrange(99, 99_999) / 100,
        "lot": chance.randrange(10**9),
    }


def _with_note(chance: random.Random, text: bytes, size: int) -> bytes:
    """Pad a text to a size with a customer's note, if there is room."""
    room = size - len(text) - len(b',"note":""')
    if room <= 0:
        return text
    words = " ".join(chance.choices(_WORDS, k=room // 3 + 1))
    return text[:-1] + b',"note":"' + words[:room].encode() + b'"}'


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def shop_batches(bodies: Sequence[bytes]) -> Iterator[list[NewMessage]]:
    """Yield endless batches of messages, as a producer's client creates them: key, unique key, tag, two properties.

    Args:
        bodies: bodies of the messages; they are used in order, and repeated.

    Yields:
        The messages that a producer sends to one queue together.
    """
    batch: list[NewMessage] = []
    number = 0
    while True:
        for body in bodies:
            properties = (
                ("KEYS", f"order-{number}"),
                ("UNIQ_KEY", f"C0A8010A1F9018B4AAC2{number:012X}"),
                ("TAGS", f"tag-{number % 5}"),
                ("WAIT", "true"),
                ("city", "Berlin"),
                ("tier", "gold"),
            )
            topic, queue_id = f"topic-{number // _BATCH % 7}", number // _BATCH % 4
            born = _START_MS + number // 8
            batch.append(NewMessage(topic, body, born, _PRODUCER, queue_id=queue_id, properties=properties))
            number += 1
            if len(batch) == _BATCH:
                yield batch
                batch = []


def make_corpora(folder: Path, gib: float, body_bytes: int, factors: Sequence[int]) -> list[Corpus]:
    """Return stores of several multiples of a size; reuse those of an earlier run.

    Args:
        folder: folder in which they are made and kept.
        gib: size of the smallest store.
        body_bytes: size of a body.
        factors: the multiples.
    """
    version = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    place = folder / f"{gib:g}-gib-of-{body_bytes}-{version}"
    pieces = math.ceil(gib)  # segments of the smallest store; a broker's segment has 1 GiB
    corpora = []
    for factor in factors:
        store = place / f"{factor}x"
        if not (store / _DONE).exists():
            _make_stores(place, int(gib * GIB / pieces), body_bytes, {each: each * pieces for each in factors})
        messages = json.loads((store / _DONE).read_text())
        corpora.append(Corpus(store, body_bytes, factor, messages))
    return corpora


def _make_stores(place: Path, segment_bytes: int, body_bytes: int, segments: dict[int, int]) -> None:
    """Fill segments, and put the first ones into each store, according to its factor."""
    shutil.rmtree(place, ignore_errors=True)
    made = place / "made"
    counts = _fill(made, segment_bytes, body_bytes, max(segments.values()))
    names = sorted(path.name for path in (made / "commitlog").iterdir())
    for factor, number in segments.items():
        store = place / f"{factor}x"
        (store / "commitlog").mkdir(parents=True)
        for name in names[:number]:
            os.link(made / "commitlog" / name, store / "commitlog" / name)
        (store / _DONE).write_text(json.dumps(sum(counts[:number])))
    shutil.rmtree(made)


def _fill(folder: Path, segment_bytes: int, body_bytes: int, segments: int) -> list[int]:
    """Write messages until a number of segments is full, and return the number of messages in each."""
    options = StoreOptions(segment_size_bytes=segment_bytes, index_slots=1000, index_entries=4000, keep_index=False)
    counts = [0] * segments
    with MessageStore.open(folder, options) as store:
        for batch in shop_batches(json_bodies(body_bytes)):
            # A batch is in one segment; when a batch goes to the segment after the last one, the others are full.
            segment = store.put_batch(batch)[0].physical_offset // segment_bytes
            if segment == segments:
                break
            counts[segment] += len(batch)
    return counts
