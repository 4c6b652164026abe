"""Which name a store has in the lake, where neither an option nor the path says it.

The first of these: the name of its folder, if the lake has a store of that name (so that what was archived under a name
goes on under it); `brokerName` in the file of `--broker-conf`; `brokerName` in `broker.conf` or `conf/broker.conf` in
the folder that holds the store, or in the store itself; the name of its folder, which is a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from connectors.commitlog.layouts import StoreLayout
from connectors.commitlog.stores import Store, find_stores, is_glob
from jobs.broker_conf import read_store_conf

_PLACES = ("../conf/broker.conf", "../broker.conf", "broker.conf", "conf/broker.conf")


@dataclass(frozen=True, slots=True)
class BrokerName:
    """A store's name and where it is from.

    Attributes:
        name: for `find_stores`; None for that of the folder.
        told: a sentence for the first run's summary; empty where there is nothing to say.
    """

    name: str | None
    told: str = ""


def broker_name(
    path: str, given: str | None, conf: str | None, known: Collection[str], layouts: Sequence[StoreLayout]
) -> BrokerName:
    """Return the name under which a path's store is, or is to be, in a lake.

    Args:
        path: stores, as for `find_stores`.
        given: `--broker`.
        conf: `--broker-conf`.
        known: names of the stores that the lake has.
        layouts: as for `find_stores`.

    Raises:
        JobError: if the file of `--broker-conf` cannot be read.
        CommitLogError: as for `find_stores`.
    """
    if given is not None or "," in path or is_glob(path) or "{" in path:
        return BrokerName(given)
    (store,) = find_stores(path, None, layouts)
    if store.broker in known:
        return BrokerName(None)
    for file in [conf] if conf else _files_beside(store):
        name = read_store_conf(file, store.broker).broker_name
        if name is not None:
            told = "" if name in known else f"store {store.root} is {name!a} in the lake: brokerName in {file}"
            return BrokerName(name, told)
    told = (
        f"store {store.root} is {store.broker!a} in the lake, after its folder: another store may have this name, too. "
        "--broker NAME or --broker-conf FILE gives it another one, before its first run"
    )
    return BrokerName(None, told)


def _files_beside(store: Store) -> list[str]:
    if "://" in store.root:
        return []
    folder = Path(store.root).parent
    return [str(folder / place) for place in _PLACES if (folder / place).is_file()]
