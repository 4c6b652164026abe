"""Places for copies of stores, each with a real server that the tests start: S3, Azure's and Google's stores, and HDFS.

A test runs at several of them, in the order of their names, as its mark says:

    @each_place(long={AzurePlace: "a copy in S3 is archived each time"})
    def test_archive_of_the_copy_equals_that_of_the_store(copy: str, tmp_path: Path) -> None:

    @at(HdfsPlace)
    def test_paths_of_another_kind_are_named(copy: str) -> None:

`place` and `copy` are fixtures of the tests that are marked so; see the folder's conftest.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, NamedTuple

import obstore
import pytest

from commitlake.connectors.storage import azure_storage, gcs_clients, hdfs_clients, s3_clients
from commitlake.connectors.storage.hdfs_files import list_versions
from commitlake.connectors.storage.hdfs_storage import TEMPORARY
from commitlake.connectors.storage.s3_storage import MIN_COPIED_BYTES
from commitlake.connectors.storage.uris import parse_cloud_uri, parse_hdfs_uri, parse_s3_uri
from commitlake.pipelines.ship.settings import ShipSettings
from commitlake.schemas.shipped_manifest import LOG_MANIFEST, PARTS
from tests.servers.azure import AzureServer
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import HdfsCluster
from tests.servers.s3 import UNSET, S3Server


class Kills(NamedTuple):
    """Kills of agents that ship to a place, so that each comes while the agent works.

    Attributes:
        number: number of kills in every run.
        after: shortest and longest time from start to kill, in seconds.
        rate: limit of the bandwidth.
        least: how many agents are at work at least when they are killed.
    """

    number: int
    after: tuple[float, float]
    rate: str = "30M"
    least: int = 2


class CopyPlace(ABC):
    """A place for copies, at a server.

    Attributes:
        name: its name in ids of tests.
        long: why no test needs to run there each time; empty if some do.
        unset: variables of the environment that would lead clients elsewhere.
        settings: settings of an agent that writes a file in several steps.
        kills: kills of an agent that ships three segments.
        requests: patterns of the requests of an agent, each of which may fail; none if they are no HTTP requests.
        fault_count: number of the requests of each pattern that fail one after the other.
        odd_prefix: prefix with characters to which URLs give a meaning; empty if the place does not have them.
        has_folder_objects: whether tools create objects with the name of a folder and a slash.
        keeps_checksums: whether a part that was changed is noticed, and sent again.
        server: the server.
    """

    name: ClassVar[str]
    long: ClassVar[str] = ""
    unset: ClassVar[tuple[str, ...]]
    settings: ClassVar[ShipSettings] = ShipSettings("b")
    kills: ClassVar[Kills]
    requests: ClassVar[tuple[str, ...]] = ()
    fault_count: ClassVar[int] = 2
    odd_prefix: ClassVar[str] = ""
    has_folder_objects: ClassVar[bool] = False
    keeps_checksums: ClassVar[bool] = False
    server: S3Server | AzureServer | GcsServer | HdfsCluster

    @abstractmethod
    def __init__(self, folder: Path) -> None:
        """Describe the place; entering the context of its server starts it.

        Args:
            folder: the server's folder.
        """

    @abstractmethod
    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """Return a user's environment variables.

        Args:
            endpoint: URL of a proxy in front of the server.
        """

    @abstractmethod
    def forget_clients(self) -> None:
        """Make the next requests read the environment again."""

    @abstractmethod
    def new_copy(self) -> str:
        """Return the URI of a copy that does not exist yet, beside which no other test writes."""

    @abstractmethod
    def files(self, copy: str) -> dict[str, bytes]:
        """Return all files below a place."""

    @abstractmethod
    def put(self, copy: str, name: str, data: bytes) -> None:
        """Write a file as another program does."""

    def unfinished(self, copy: str) -> list[str]:  # noqa: ARG002
        """Return what an agent that has done its work should have removed."""
        return []

    def other_uri(self, copy: str, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: ARG002
        """Return another form of a URI that needs settings, if the place has one."""
        return copy

    def use(self, monkeypatch: pytest.MonkeyPatch, endpoint: str | None = None) -> None:
        """Set a user's environment.

        Args:
            monkeypatch: restores the environment.
            endpoint: URL of a proxy in front of the server.
        """
        for name in self.unset:
            monkeypatch.delenv(name, raising=False)
        for name, value in self.environment(endpoint).items():
            monkeypatch.setenv(name, value)
        self.forget_clients()


class S3Place(CopyPlace):
    """A bucket of an S3 server."""

    name = "s3"
    unset = UNSET
    settings = ShipSettings("b", part_bytes=MIN_COPIED_BYTES, full_part_bytes=MIN_COPIED_BYTES, merged_count=3)
    kills = Kills(5, (0.6, 1.6), least=3)
    requests = ("^PUT .*log[.]json", "^PUT .*/parts/", "^PUT .*partNumber", "^POST .*uploadId", "^DELETE")
    has_folder_objects = True

    def __init__(self, folder: Path) -> None:
        self.server: S3Server = S3Server(folder)

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """See CopyPlace."""
        return self.server.environment(endpoint)

    def forget_clients(self) -> None:
        """See CopyPlace."""
        s3_clients._forget_clients()

    def new_copy(self) -> str:
        """See CopyPlace."""
        bucket = f"bucket-{secrets.token_hex(6)}"
        self.server.client().create_bucket(Bucket=bucket)
        return f"s3://{bucket}/copy"

    def files(self, copy: str) -> dict[str, bytes]:
        """See CopyPlace."""
        uri, client = parse_s3_uri(copy), self.server.client()
        listed = client.list_objects_v2(Bucket=uri.bucket, Prefix=uri.key("")).get("Contents", ())
        bodies = {each["Key"]: client.get_object(Bucket=uri.bucket, Key=each["Key"])["Body"].read() for each in listed}
        return {key.removeprefix(uri.key("")): data for key, data in bodies.items()}

    def put(self, copy: str, name: str, data: bytes) -> None:
        """See CopyPlace."""
        uri = parse_s3_uri(copy)
        self.server.client().put_object(Bucket=uri.bucket, Key=uri.key(name), Body=data)

    def unfinished(self, copy: str) -> list[str]:
        """See CopyPlace."""
        uploads = self.server.client().list_multipart_uploads(Bucket=parse_s3_uri(copy).bucket)
        return [each["Key"] for each in uploads.get("Uploads", ())]


class AzurePlace(CopyPlace):
    """A container of an account of Azure."""

    name = "azure"
    unset = ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_STORAGE_SAS_TOKEN")
    kills = Kills(6, (0.6, 2.6))
    requests = ("^PUT .*log[.]json", "^PUT .*/parts/", "^PUT .*comp=block&", "^PUT .*comp=blocklist")

    def __init__(self, folder: Path) -> None:
        self.server: AzureServer = AzureServer(folder)

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """See CopyPlace."""
        return self.server.environment(endpoint)

    def forget_clients(self) -> None:
        """See CopyPlace."""
        azure_storage.forget_clients()

    def new_copy(self) -> str:
        """See CopyPlace."""
        container = f"logs-{secrets.token_hex(6)}"
        self.server.create_container(container)
        return self.server.uri(container, "brokers/copy")

    def files(self, copy: str) -> dict[str, bytes]:
        """See CopyPlace."""
        uri = parse_cloud_uri(copy)
        client = azure_storage.azure_client(uri)
        keys = [str(each["path"]) for page in obstore.list(client, uri.prefix) for each in page]
        return {key.removeprefix(f"{uri.prefix}/"): bytes(obstore.get(client, key).bytes()) for key in keys}

    def put(self, copy: str, name: str, data: bytes) -> None:
        """See CopyPlace."""
        uri = parse_cloud_uri(copy)
        obstore.put(azure_storage.azure_client(uri), uri.key(name), data)


class GcsPlace(CopyPlace):
    """A bucket of Google Cloud Storage."""

    name = "gcs"
    long = "its server is built for minutes; ship to Azure has the same steps each time"
    unset = ("STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CONFIG")
    kills = Kills(3, (1.0, 3.0))
    requests = (
        "^POST .*=multipart.*[?&]ifGenerationMatch", "^POST .*=multipart", "^POST .*=resumable", "^PUT ",
        "^POST .*/compose", "^DELETE",
    )  # fmt: skip
    fault_count = 1
    odd_prefix = "a b/%41+&=#ü"
    has_folder_objects = True
    keeps_checksums = True

    def __init__(self, folder: Path) -> None:
        self.server: GcsServer = GcsServer(folder)

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """See CopyPlace."""
        return self.server.environment(endpoint)

    def forget_clients(self) -> None:
        """See CopyPlace."""
        gcs_clients.forget_client()

    def new_copy(self) -> str:
        """See CopyPlace."""
        bucket = f"logs-{secrets.token_hex(6)}"
        self.server.create_bucket(bucket)
        return f"gs://{bucket}/brokers/copy"

    def files(self, copy: str) -> dict[str, bytes]:
        """See CopyPlace."""
        uri = parse_cloud_uri(copy)
        blobs = list(gcs_clients.gcs_bucket(uri).list_blobs(prefix=f"{uri.prefix}/"))
        return {blob.name.removeprefix(f"{uri.prefix}/"): blob.download_as_bytes() for blob in blobs}

    def put(self, copy: str, name: str, data: bytes) -> None:
        """See CopyPlace."""
        uri = parse_cloud_uri(copy)
        gcs_clients.gcs_bucket(uri).blob(f"{uri.prefix}/{name}").upload_from_string(data)


class HdfsPlace(CopyPlace):
    """A folder in HDFS."""

    name = "hdfs"
    unset = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "HADOOP_PROXY_USER")
    kills = Kills(6, (1.0, 4.0), "20M")

    def __init__(self, folder: Path) -> None:
        self.server: HdfsCluster = HdfsCluster(folder)

    def environment(self, endpoint: str | None = None) -> Mapping[str, str]:
        """See CopyPlace; the address is in the URI."""
        assert endpoint is None
        return {}

    def forget_clients(self) -> None:
        """See CopyPlace."""
        hdfs_clients.forget_clients()

    def new_copy(self) -> str:
        """See CopyPlace."""
        return f"{self.server.uri}/logs-{secrets.token_hex(6)}/brokers/copy"

    def files(self, copy: str) -> dict[str, bytes]:
        """See CopyPlace."""
        uri = parse_hdfs_uri(copy)
        client = hdfs_clients.HdfsClient(uri)
        found = {}
        for status in client.list_files(uri.key("")):
            reader = client.open(status.path)
            found[status.path.removeprefix(f"{uri.key('')}/")] = client.read(reader, 0, len(reader), status.path)
        return found

    def put(self, copy: str, name: str, data: bytes) -> None:
        """See CopyPlace."""
        uri = parse_hdfs_uri(copy)
        client = hdfs_clients.HdfsClient(uri)
        client.make_folder(uri.key(name).rpartition("/")[0])
        client.rename(client.write_new_file("/tmp", [data]), uri.key(name), replace=True)

    def unfinished(self, copy: str) -> list[str]:
        """See CopyPlace; a folder, too, costs memory of the NameNode."""
        uri = parse_hdfs_uri(copy)
        client = hdfs_clients.HdfsClient(uri)
        versions = list_versions(client, uri.key(LOG_MANIFEST))
        return [
            *(found.path for found in client.list(uri.key(TEMPORARY))),
            *(found.path for found in client.list(uri.key(f"{PARTS}/of-commitlog")) if not client.list(found.path)),
            *(f"version {number}" for number in versions[:-2]),
        ]

    def other_uri(self, copy: str, monkeypatch: pytest.MonkeyPatch) -> str:
        """See CopyPlace; it names a nameservice."""
        monkeypatch.setenv("HADOOP_CONF_DIR", str(self.server.configuration))
        return copy.replace(self.server.uri, "hdfs://tests")


PLACES: tuple[type[CopyPlace], ...] = (S3Place, AzurePlace, GcsPlace, HdfsPlace)


def each_place(
    *, long: Mapping[type[CopyPlace], str] | None = None, without: Mapping[type[CopyPlace], str] | None = None
) -> pytest.MarkDecorator:
    """Run a test at each place.

    Args:
        long: why the test need not run each time, for some places.
        without: why the test cannot run, for other places.
    """
    wanted = [kind for kind in PLACES if kind not in (without or {})]
    return pytest.mark.parametrize(
        "place", [_parameter(kind, (long or {}).get(kind)) for kind in wanted], indirect=True
    )


def at(kind: type[CopyPlace]) -> pytest.MarkDecorator:
    """Run a test at one place only, because it is about the protocol or the settings of that place."""
    return pytest.mark.parametrize("place", [_parameter(kind)], indirect=True)


def _parameter(kind: type[CopyPlace], why_long: str | None = None) -> object:
    reason = why_long or kind.long
    return pytest.param(kind, id=kind.name, marks=[pytest.mark.long(reason)] if reason else [])
