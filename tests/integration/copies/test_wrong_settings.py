"""Wrong URIs, servers and credentials of object stores and HDFS: jobs say what is wrong, and no secret."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.storage.uris import parse_cloud_uri
from commitlake.jobs.dump import command as dump
from commitlake.jobs.ship import command as ship
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.gcs import other_key
from tests.support.copies import SIZE
from tests.support.copy_places import AzurePlace, CopyPlace, GcsPlace, HdfsPlace, S3Place, at, each_place
from tests.support.logs import messages, open_segment, write_store

pytestmark = pytest.mark.usefixtures("usual_priority")

SECRET = "d3Jvbmc="
NOWHERE = "http://127.0.0.1:9"
BOTH = ("ship", "dump")


@dataclass(frozen=True)
class Wrong:
    """Something that is wrong, and what the jobs do.

    Attributes:
        copy: URI of the copy.
        code: exit code.
        told: what the error contains.
        environment: variables that differ from a user's; None for one that is not set.
        jobs: the jobs that are run.
    """

    copy: str
    code: int
    told: str
    environment: Mapping[str, str | None] = field(default_factory=dict)
    jobs: tuple[str, ...] = BOTH


def wrong_in_s3(_: S3Place, copy: str, __: Path) -> Iterator[Wrong]:
    """Yield what can be wrong in S3."""
    key = {"AWS_SECRET_ACCESS_KEY": SECRET}
    yield Wrong("s3://no-such-bucket/copy", 2, "no bucket 'no-such-bucket'", jobs=("ship",))
    yield Wrong(copy, 2, "credentials that the server refuses", key, ("ship",))
    yield Wrong(copy, 1, "no server at the endpoint", {**key, "AWS_ENDPOINT_URL_S3": NOWHERE}, ("ship",))


def wrong_in_azure(_: AzurePlace, copy: str, __: Path) -> Iterator[Wrong]:
    """Yield what can be wrong in Azure's store."""
    container = parse_cloud_uri(copy).container
    yield Wrong(copy.replace(container, "no-such-container"), 2, "no container 'no-such-container'")
    expected = "expected abfss://container@account.dfs.core.windows.net/prefix"
    yield Wrong(copy.replace(".dfs", ""), 2, expected)
    yield Wrong(f"{copy}?sig={SECRET}", 2, "holds credentials")
    yield Wrong("wasbs://bucket/copy", 2, "wasbs://")
    key = {"AZURE_STORAGE_ACCOUNT_KEY": SECRET}
    yield Wrong(copy, 2, "access denied", key)
    no_key = {"AZURE_STORAGE_ACCOUNT_KEY": f"not base64: {SECRET}"}
    yield Wrong(copy, 2, "no credentials that can be used", no_key)
    yield Wrong(copy, 2, "AZURE_STORAGE_ENDPOINT", {**no_key, "AZURE_STORAGE_ENDPOINT": "ftp://server"})
    away = {**key, "AZURE_STORAGE_ENDPOINT": f"{NOWHERE}/account"}
    yield Wrong(copy, 1, "no server at the endpoint", away)


def wrong_in_gcs(place: GcsPlace, copy: str, folder: Path) -> Iterator[Wrong]:
    """Yield what can be wrong in Google's store."""
    yield Wrong(copy.replace("logs-", "no-such-"), 2, "no bucket 'no-such-")
    yield Wrong("gs://Not_a_bucket/a", 2, "expected gs://bucket/prefix")
    yield Wrong(f"gs://user:{SECRET}@bucket/a", 2, "holds credentials")
    endpoint = "COMMITLAKE_GCS_ENDPOINT"
    with FaultProxy(place.server.address) as proxy:
        proxy.inject(Fault.ANSWER_403, times=100)
        yield Wrong(copy, 2, "access denied (forbidden)", {endpoint: proxy.endpoint})
    with FaultProxy(place.server.address) as proxy:  # a role that only reads
        proxy.inject(Fault.ANSWER_403, times=100, request="^POST")
        told = "access denied (403). Give the service account the role"
        yield Wrong(copy, 2, told, {endpoint: proxy.endpoint}, ("ship",))
    yield Wrong(copy, 1, "no server at the endpoint", {endpoint: NOWHERE}, ("dump",))
    yield Wrong(copy, 2, endpoint, {endpoint: f"https://user:{SECRET}@server"})
    none, key = "no credentials that can be used", "GOOGLE_APPLICATION_CREDENTIALS"
    file = place.server.write_key("away.json", other_key())
    file.write_text(json.dumps({**json.loads(file.read_text()), "token_uri": f"{NOWHERE}/token"}))
    yield Wrong(copy, 1, f"{none}, because their server cannot be reached", {key: str(file)}, ("dump",))
    other = place.server.write_key("other.json", other_key())
    yield Wrong(copy, 2, f"{none}, because their server refuses", {key: str(other)})
    yield Wrong(copy, 2, none, {key: str(place.server.write_key("broken.json", SECRET))})
    yield Wrong(copy, 2, f"{none} (DefaultCredentialsError)", {key: str(folder / "missing.json")})
    yield Wrong(copy, 2, key, {key: str(folder)})
    yield Wrong(copy, 2, f"{none} (DefaultCredentialsError)", {key: None, "CLOUDSDK_CONFIG": str(folder)})


def wrong_in_hdfs(place: HdfsPlace, copy: str, __: Path) -> Iterator[Wrong]:
    """Yield what can be wrong in HDFS; a copy is there."""
    path = copy.removeprefix(place.server.uri)
    yield Wrong(f"hdfs://127.0.0.1:9{path}", 1, "no connection to the NameNode '127.0.0.1:9'")
    host = "no-such-host.invalid:8020"
    yield Wrong(f"hdfs://{host}{path}", 1, f"no connection to the NameNode '{host}'")
    yield Wrong(f"hdfs://nameservice{path}", 2, "no nameservice 'nameservice' in the settings of Hadoop")
    yield Wrong(f"hdfs://me:{SECRET}@127.0.0.1:9{path}", 2, "holds credentials")
    yield Wrong(f"{copy}/a:b", 2, "expected hdfs://host:port/folder or hdfs://nameservice/folder")
    yield Wrong(f"hdfs://{path}", 2, "expected hdfs://host:port/folder or hdfs://nameservice/folder")
    denied = "access denied (Permission denied: user=mallory"
    yield Wrong(copy, 2, denied, {"HADOOP_USER_NAME": "mallory"})
    yield Wrong(f"{copy}/missing", 2, f"{copy}/missing", jobs=("dump",))


WRONG: dict[type[CopyPlace], Callable[[Any, str, Path], Iterator[Wrong]]] = {
    S3Place: wrong_in_s3,
    AzurePlace: wrong_in_azure,
    GcsPlace: wrong_in_gcs,
    HdfsPlace: wrong_in_hdfs,
}


@each_place(long={HdfsPlace: "wrong settings are named by the same jobs for S3 each time"})
def test_wrong_settings_are_named(
    place: CopyPlace, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))]))
    if isinstance(place, HdfsPlace):  # whose folders have owners
        assert ship.main(["--store", store, "--to", copy, "--once"]) == 0
    for wrong in WRONG[type(place)](place, copy, tmp_path):
        commands = {
            "ship": (ship.main, ["--store", store, "--to", wrong.copy, "--once", "--verbose"]),
            "dump": (dump.main, [wrong.copy, "--verbose"]),
        }
        with monkeypatch.context() as environment:
            for name, value in wrong.environment.items():
                environment.delenv(name) if value is None else environment.setenv(name, value)
            for name in wrong.jobs:
                place.forget_clients()
                capsys.readouterr()
                main, arguments = commands[name]
                assert main(arguments) == wrong.code, (name, wrong)
                told = capsys.readouterr().err
                assert wrong.told in told, (name, wrong)
                assert SECRET not in told
                assert "PRIVATE KEY" not in told
                assert "Traceback" not in told


@at(GcsPlace)
def test_an_emulator_needs_no_credentials(
    place: GcsPlace, copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(write_store(tmp_path / "store", [(0, open_segment(messages(3), SIZE))]))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.delenv("COMMITLAKE_GCS_ENDPOINT")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", place.server.endpoint)
    place.forget_clients()
    assert ship.main(["--store", store, "--to", copy, "--once"]) == 0
