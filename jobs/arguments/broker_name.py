"""The name of a store in the lake, if neither an option nor the path gives it.

The name is the first of these that exists:

1. the name of its folder, if the lake has a store of that name, so that a store keeps its name;
2. `brokerName` in the file of `--broker-conf`;
3. `brokerName` in `broker.conf` or `conf/broker.conf`, in the folder that contains the store or in the store itself;
4. the name of its folder, which is a guess.

The user did not name the files of step 3, and anybody may have put them there. So such a file is skipped with a warning
if it cannot be read, if it is a link in the store, or if its name is not a valid broker name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from commitlake.connectors.lake.packs.names import find_broker_name_fault, fits_folder_name
from commitlake.connectors.log_format.format import Formats
from commitlake.connectors.reading.settings_files import BROKER_PLACEHOLDER
from commitlake.connectors.reading.stores import Store, find_stores, format_broker_names, is_glob
from commitlake.jobs.arguments.broker_conf import read_store_conf
from commitlake.jobs.arguments.conf_file_names import NAME_HINT, read_names_in_conf_files
from commitlake.jobs.cli.command import JobError


@dataclass(frozen=True, slots=True)
class BrokerName:
    """Name of a store in the lake, with a note on where the name was found.

    Attributes:
        name: the name, or names of several stores, for `find_stores`; None for the name of the folder.
        note: a sentence on where the name was found, for the first run's summary; or empty.
    """

    name: str | None
    note: str = ""


def choose_broker_name(
    path: str, given_name: str | None, conf_path: str | None, known_names: Collection[str], formats: Formats
) -> BrokerName:
    """Return the name that the store at a path has, or will have, in a lake.

    Args:
        path: path of the stores, as for `find_stores`.
        given_name: value of `--broker`.
        conf_path: value of `--broker-conf`.
        known_names: names of the stores that the lake has.
        formats: formats of the stores, as for `find_stores`.

    Raises:
        JobError: if the file of `--broker-conf` cannot be read, or its name is not a valid broker name.
        CommitLogError: see `find_stores`.
    """
    if given_name is not None or "{" in path:
        if given_name is not None and given_name not in known_names:
            _check_store_name(given_name, "--broker")
        return BrokerName(given_name)
    if "," not in path and not is_glob(path):
        (store,) = find_stores(path, None, formats=formats)
        return _choose_store_name(store, conf_path, known_names)
    parts = [part.strip() for part in path.split(",") if part.strip()]
    stores = [store for part in parts for store in find_stores(part, None, formats=formats)]
    of_each = conf_path if conf_path and BROKER_PLACEHOLDER in conf_path else None
    found = {store.root: _choose_store_name(store, of_each, known_names) for store in stores}
    names = {root: one.name for root, one in found.items() if one.name is not None}
    notes = "; ".join(one.note for one in found.values() if one.note)
    return BrokerName(format_broker_names(names) if names else None, notes)


def find_named_stores(path: str, given_name: str | None, conf_path: str | None, formats: Formats) -> list[Store]:
    """Return the stores at a path, named by their settings files or else their folders, for commands without a lake.

    Names come from steps 2 to 4 of the module docstring. If two stores would have the same name, as two copies of a
    store, all have the names of their folders. They have these, too, if the file of `--broker-conf` is found by them.

    Args:
        path: path of the stores, as for `find_stores`.
        given_name: value of `--broker`, if it names the store.
        conf_path: value of `--broker-conf`.
        formats: formats of the stores, as for `find_stores`.

    Raises:
        JobError: if the file of `--broker-conf` cannot be read, or its name is not a valid broker name.
        CommitLogError: see `find_stores`.
    """
    stores = find_stores(path, given_name, formats=formats)
    if given_name is not None or "{" in path or (conf_path and BROKER_PLACEHOLDER in conf_path):
        return stores
    of_single = conf_path if len(stores) == 1 else None
    names = [next((name for _, name in _list_name_candidates(store, of_single)), store.broker) for store in stores]
    if len(set(names)) < len(names):
        return stores
    named = (replace(store, broker=name) for store, name in zip(stores, names, strict=True))
    return sorted(named, key=lambda store: store.broker)


def _choose_store_name(store: Store, conf_path: str | None, known_names: Collection[str]) -> BrokerName:
    if store.broker in known_names:
        return BrokerName(None)
    for file, name in _list_name_candidates(store, conf_path):
        note = "" if name in known_names else f"store {store.root} is {name!a} in the lake: brokerName in {file}"
        return BrokerName(name, note)
    if not fits_folder_name(store.broker):
        raise JobError(
            f"store {store.root}: the name of its folder is too long for the name of a store in a lake", NAME_HINT
        )
    note = (
        f"store {store.root} is {store.broker!a} in the lake, after its folder, which is a guess. Before the first "
        "run, --broker NAME or --broker-conf FILE gives it another name"
    )
    return BrokerName(None, note)


def _check_store_name(name: str, source: str) -> None:
    if fault := find_broker_name_fault(name):
        raise JobError(f"{source}: {fault}", NAME_HINT)


def _list_name_candidates(store: Store, conf_path: str | None) -> Iterator[tuple[str, str]]:
    """Yield (file, store name) pairs from the settings files that name the store, the most reliable file first."""
    if conf_path:
        name = read_store_conf(conf_path, store.broker).broker_name
        if name is not None:
            _check_store_name(name, f"--broker-conf {conf_path}: brokerName")
            yield conf_path, name
    elif not store.is_remote:
        yield from read_names_in_conf_files(Path(store.root).parent)
