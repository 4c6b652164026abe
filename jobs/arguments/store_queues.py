"""Topics and queue ids of stores, read from their folders, for checking names in a job's options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from commitlake.connectors.reading.files.shipped_files import NoCopyError
from commitlake.connectors.reading.files.store_files import open_store_files, store_folder_of_log
from commitlake.connectors.reading.stores import Store
from commitlake.jobs.arguments.similar_names import suggest_similar_name
from commitlake.schemas.layouts.integer_parsing import INT32_MAX, parse_int

_SHOWN = 8


def queue_ids_by_topic(store: Store) -> dict[str, set[int]]:
    """Return the queue ids of each topic that has a queue folder; an empty mapping if the store has no such folders.

    Those of a copy in an object store are in its manifest. They are also empty if it has none.
    """
    if store.is_remote:
        return _queue_ids_of_shipped_copy(store)
    root = Path(store.root).parent
    found: dict[str, set[int]] = {}
    for name in store.format.queues.folders:
        for topic in _subfolders(root / name):
            queues = found.setdefault(topic.name, set())
            queues |= {
                number for each in _subfolders(topic) if (number := parse_int(each.name, 0, INT32_MAX)) is not None
            }
    return found


def _queue_ids_of_shipped_copy(store: Store) -> dict[str, set[int]]:
    try:
        files = open_store_files(store_folder_of_log(store.root))
    except NoCopyError:
        return {}
    found: dict[str, set[int]] = {}
    for folder in store.format.queues.folders:
        for topic in files.folders_in(folder):
            names = files.folders_in(f"{folder}/{topic}")
            numbers = {number for name in names if (number := parse_int(name, 0, INT32_MAX)) is not None}
            found.setdefault(topic, set()).update(numbers)
    return found


def unknown_store_name_sentences(stores: Iterable[Store], topics: Sequence[str], queue_ids: Sequence[int]) -> list[str]:
    """Return a sentence for each requested topic, and each requested queue id, that does not exist in any store.

    Args:
        stores: The stores. If one has no folders of queues, its names are unknown, and nothing is returned.
        topics: Names of topics; if empty, queues of all topics are searched.
    """
    if not topics and not queue_ids:
        return []
    known: dict[str, set[int]] = {}
    for store in stores:
        queues = queue_ids_by_topic(store)
        if not queues:
            return []
        for topic, numbers in queues.items():
            known.setdefault(topic, set()).update(numbers)
    found = [
        f"no queue of a topic {topic!a}.{suggest_similar_name(topic, known)}" for topic in topics if topic not in known
    ]
    chosen = [topic for topic in topics or known if topic in known]
    there = sorted(set().union(*(known[topic] for topic in chosen)))
    of_what = " or ".join(f"{topic!a}" for topic in chosen) if topics else "any topic"
    shown = ", ".join(map(str, there[:_SHOWN])) + (", ..." if len(there) > _SHOWN else "")
    if chosen:
        found += [
            f"no queue {queue} of {of_what}; there are {shown or 'none'}" for queue in queue_ids if queue not in there
        ]
    return found


def _subfolders(path: Path) -> list[Path]:
    return [each for each in path.iterdir() if each.is_dir()] if path.is_dir() else []
