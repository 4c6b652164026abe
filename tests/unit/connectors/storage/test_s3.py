"""Choice of an object store, and errors for unsuitable ones; no object store is contacted here."""

from __future__ import annotations

import datetime
import json
import pickle
import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from botocore import exceptions

from commitlake.connectors import unencrypted_connections
from commitlake.connectors.catalog.names import CatalogError
from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.errors import PackStoreError
from commitlake.connectors.lake.packs.location import PackLocation, pack_location
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.storage import s3_clients
from commitlake.connectors.storage.errors import S3Error, S3UnavailableError
from commitlake.connectors.storage.s3_clients import delta_options, s3_client, s3_options
from commitlake.connectors.storage.s3_errors import s3_error
from commitlake.connectors.storage.s3_options import S3Options, s3a_settings, spark_uri
from commitlake.connectors.storage.s3_storage import S3Storage
from commitlake.connectors.storage.uris import is_s3, parse_s3_uri

VARIABLES = (
    "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE",
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
)  # fmt: skip
LOCAL = S3Options("http://127.0.0.1:9000", "eu-west-1", virtual_hosts=False)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings and no credentials from outside."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(s3_clients, "_clients", {})


@pytest.mark.parametrize(
    ("uri", "bucket", "prefix"),
    [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("s3a://bucket/a/b", "bucket", "a/b"),
        ("s3n://my.bucket-1/a=1/", "my.bucket-1", "a=1"),
        ("S3://bucket/Prefix With Space", "bucket", "Prefix With Space"),
        ("s3://bucket/äé日!$&'()+,-.;=@_~", "bucket", "äé日!$&'()+,-.;=@_~"),
    ],
)
def test_a_uri_is_a_bucket_and_a_prefix(uri: str, bucket: str, prefix: str) -> None:
    found = parse_s3_uri(uri)
    assert (found.bucket, found.prefix) == (bucket, prefix)
    assert parse_s3_uri(str(found)) == found
    assert found.key("name") == (f"{prefix}/name" if prefix else "name")


@pytest.mark.parametrize(
    "uri", ["s3://", "s3:///a", "s3://B/a", "s3://a_b/c", "s3://bucket/a//b", "s3://bucket/../a", "s3://bucket/a?b",
            "s3://bucket/a#b", "http://bucket/a", "bucket/a", "s3://bucket/a%20b", "s3://bucket/a:b", "s3://bucket/[a]",
            "s3://bucket/a^b", "s3://bucket/a|b", "s3://bucket/a\\b", "s3://bucket/a\nb", "s3://bucket/{a}"],
)  # fmt: skip
def test_an_invalid_uri_is_refused(uri: str) -> None:
    with pytest.raises(S3Error, match=rf"^{re.escape(repr(uri))}: expected s3://bucket/prefix"):
        parse_s3_uri(uri)


def test_credentials_in_a_uri_or_endpoint_are_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in (
        lambda: parse_s3_uri("s3://AKIA:verysecret@bucket/a"),
        lambda: Lake("s3://AKIA:verysecret@bucket/a"),
        lambda: pack_location("s3a://AKIA:verysecret@bucket/a"),
        lambda: s3_options("http://AKIA:verysecret@host:9000"),
        lambda: s3_options("AKIA:verysecret@host:9000"),
    ):
        with pytest.raises(S3Error, match=r"holds credentials\. Leave them out") as raised:
            call()
        assert "verysecret" not in repr(raised.value)


@pytest.mark.parametrize(
    ("variables", "config"),
    [
        ({"AWS_ENDPOINT_URL_S3": "http://s3.example.org:9000", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, ""),
        (
            {"AWS_ENDPOINT_URL": "http://s3.example.org:9000"},
            "[default]\nignore_configured_endpoint_urls = true\n",
        ),
        (
            {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            "[default]\nendpoint_url = http://s3.example.org:9000\n",
        ),
    ],
)
def test_configured_endpoints_are_ignored_if_aws_settings_require_it(
    variables: dict[str, str], config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(config)
    for name, value in {"AWS_REGION": "eu-west-1", **variables}.items():
        monkeypatch.setenv(name, value)
    assert s3_options() == S3Options("https://s3.eu-west-1.amazonaws.com", "eu-west-1", virtual_hosts=False)
    assert s3_options("https://given.example.org").endpoint == "https://given.example.org"


SERVICES = "[default]\nservices = local\n[services local]\ns3 =\n  endpoint_url = http://s3.example.org:9000\n"


@pytest.mark.parametrize(
    ("variables", "config"),
    [
        ({"AWS_ENDPOINT_URL_S3": "http://s3.example.org:9000", "AWS_ENDPOINT_URL": "https://other.example.org"}, ""),
        ({"AWS_ENDPOINT_URL": "http://s3.example.org:9000"}, ""),
        ({}, "[default]\nendpoint_url = http://s3.example.org:9000\n"),
        ({}, SERVICES),
        ({"AWS_PROFILE": "mine"}, SERVICES.replace("[default]", "[profile mine]\nendpoint_url = https://other")),
    ],
)
def test_an_endpoint_without_tls_from_any_setting_causes_a_warning(
    variables: dict[str, str],
    config: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(unencrypted_connections, "_warned", set())
    (tmp_path / "config").write_text(config)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = s3_options()
    assert options.endpoint == "http://s3.example.org:9000"
    assert s3_client(options).meta.endpoint_url == options.endpoint
    assert "http://s3.example.org:9000 is reached without TLS" in caplog.text


def test_an_endpoint_that_is_not_a_url_is_refused() -> None:
    with pytest.raises(S3Error, match="Invalid IPv6 URL"):
        s3_options("http://[::1:9000")


@pytest.mark.parametrize(("minutes", "calls"), [(60, 1), (None, 3)])
def test_only_credentials_that_expire_are_kept(minutes: int | None, calls: int, tmp_path: Path) -> None:
    end = None if minutes is None else datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    answer = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b"}
    (tmp_path / "answer").write_text(json.dumps(answer | ({} if end is None else {"Expiration": end.isoformat()})))
    command = f"sh -c 'echo >> {tmp_path}/calls; cat {tmp_path}/answer'"
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
    found = [delta_options(S3Options()) for _ in range(3)]
    assert [options["aws_access_key_id"] for options in found] == ["a"] * 3
    assert len((tmp_path / "calls").read_text()) == calls


@pytest.mark.parametrize("path", ["/data/lake", "lake", "file:///data/lake", "s3/lake", "/data/a b:c%/ä"])
def test_other_paths_are_not_s3_uris(path: str) -> None:
    assert not is_s3(path)
    assert pack_location(path) == PackLocation(path)
    assert Lake(path).s3 is None
    assert storage_options(path) is None
    assert spark_uri(path) == path


@pytest.mark.parametrize("place", ["hdfs://host/lake", "gs://bucket/lake", "x-s3://a", "dbfs:/lake"])
def test_other_stores_are_refused_for_lakes_and_for_bodies(place: str) -> None:
    with pytest.raises(LakeError, match=f"'{place}' cannot hold a lake: expected a folder, or s3://bucket/prefix"):
        Lake(place)
    with pytest.raises(PackStoreError, match="expected a folder of this machine"):
        open_pack_store(pack_location(place))


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("dbfs:/Volumes/main/logs/lake", "/Volumes/main/logs/lake"),
        ("dbfs:///Volumes/main/logs/lake", "/Volumes/main/logs/lake"),
        ("DBFS:/mnt/lake", "/dbfs/mnt/lake"),
        ("dbfs:/Volumes", "/dbfs/Volumes"),
    ],
)
def test_a_uri_of_databricks_is_refused_with_its_path_there(place: str, path: str) -> None:
    with pytest.raises(LakeError, match=f"s3://bucket/prefix. On Databricks, its path is {path}: "):
        Lake(place)


@pytest.mark.parametrize("place", ["abfss://logs@account.dfs.core.windows.net/lake", "gs://bucket/lake"])
def test_other_schemes_get_no_hint_about_databricks(place: str) -> None:
    with pytest.raises(LakeError, match=r"or s3://bucket/prefix$"):
        Lake(place)


@pytest.mark.parametrize("name", ["logs.messages", "main.logs.messages"])
def test_a_name_in_a_catalog_needs_a_catalog_unless_it_is_a_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("UNITY_CATALOG_URL", "DATABRICKS_HOST"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(CatalogError, match=rf"no catalog is set: .* write \./{name}"):
        Lake(name)
    assert Lake(f"./{name}").root == f"./{name}"
    (tmp_path / name).mkdir()
    assert Lake(name).root == name


@pytest.mark.parametrize("name", ["a\\b", "a\nb", "a[1]", "a^b", "a|b", "a#b", "a?b", "a%20b"])
def test_folders_that_the_library_of_tables_cannot_name_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LakeError, match="cannot hold a lake: its path has"):
        Lake(f"/data/{name}/lake")
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(LakeError, match="Name another folder"):
        Lake("lake")


def test_arguments_override_the_environment_which_overrides_the_profile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert s3_options() == S3Options(None, "us-east-1", virtual_hosts=True)
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\nendpoint_url = https://profile.example\n")
    assert s3_options() == S3Options("https://profile.example", "eu-north-1", virtual_hosts=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://all.example")
    assert s3_options() == S3Options("https://all.example", "eu-central-1", virtual_hosts=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example")
    assert s3_options() == S3Options("https://s3.example", "eu-west-3", virtual_hosts=False)
    assert s3_options("http://given:1", "here") == S3Options("http://given:1", "here", virtual_hosts=False)


def test_a_profile_may_set_how_buckets_are_addressed(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[default]\nendpoint_url = https://oss.example\ns3 =\n  addressing_style = virtual\n"
    )
    assert s3_options().virtual_hosts


@pytest.mark.parametrize("endpoint", ["localhost:9000", "s3.example.org", "ftp://host", "http://"])
def test_an_endpoint_is_a_url(endpoint: str) -> None:
    with pytest.raises(S3Error, match="expected http://HOST:PORT or https://HOST"):
        s3_options(endpoint)


def test_pickled_places_have_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
    apart = Lake("/data/lake", packs=PackLocation("s3://bucket/bodies"))
    assert apart.packs.s3 == s3_options()
    for place in (
        Lake("s3a://bucket/lake/"), apart, apart.pin_versions(),
        pack_location("s3://bucket/bodies", S3Options(region="eu-west-1")),
    ):  # fmt: skip
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
        sent = pickle.dumps(place)
        monkeypatch.delenv("AWS_ENDPOINT_URL_S3")
        assert pickle.loads(sent) == place
        assert b"verysecret" not in sent
    assert Lake("s3a://bucket/lake/").uri("messages") == "s3://bucket/lake/messages"


def test_credentials_are_found_like_boto3s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(S3Error, match=r"requires credentials, found no credentials\. Set AWS_ACCESS_KEY_ID"):
        delta_options(LOCAL)
    (tmp_path / "credentials").write_text("[night]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_PROFILE", "night")
    assert delta_options(LOCAL) == {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "aws_region": "eu-west-1",
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
        "aws_endpoint_url": "http://127.0.0.1:9000",
        "aws_endpoint_url_s3": "http://127.0.0.1:9000",
        "aws_allow_http": "true",
    }
    monkeypatch.setenv("AWS_PROFILE", "day")
    with pytest.raises(S3Error, match=r"found no such profile\. Correct AWS_PROFILE"):
        delta_options(LOCAL)
    with pytest.raises(S3Error, match=r"found no such profile\. Correct AWS_PROFILE"):
        s3_options()


def test_a_roles_session_token_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("SESSION_TOKEN", "token")):
        monkeypatch.setenv(f"AWS_{name}", value)
    found = delta_options(S3Options())
    assert found["aws_session_token"] == "token"
    assert "aws_endpoint_url" not in found
    assert found["aws_virtual_hosted_style_request"] == "true"


def test_spark_settings_have_the_endpoint_but_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "verysecret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecret")
    settings = s3a_settings(LOCAL)
    assert settings["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert settings["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert settings["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert not any(word in f"{name} {value}" for name, value in settings.items() for word in ("verysecret", "key"))
    assert "spark.hadoop.fs.s3a.endpoint" not in s3a_settings(S3Options())
    assert spark_uri("s3://bucket/a") == spark_uri("s3a://bucket/a/") == "s3a://bucket/a"


def test_a_process_has_one_client_for_a_server() -> None:
    assert s3_client(LOCAL) is s3_client(S3Options("http://127.0.0.1:9000", "eu-west-1", virtual_hosts=False))
    assert s3_client(LOCAL) is not s3_client(LOCAL, attempts=1)
    assert s3_client(LOCAL) is not s3_client(S3Options(LOCAL.endpoint, "us-east-1", virtual_hosts=False))


def answer(code: str, status: int = 400) -> exceptions.ClientError:
    """Return boto3's error for a server's answer."""
    response = {"Error": {"Code": code, "Message": "a secret"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return exceptions.ClientError(response, "GetObject")


@pytest.mark.parametrize(
    ("error", "found", "advice"),
    [
        (answer("InvalidAccessKeyId", 403), "credentials that the server refuses", "AWS_ACCESS_KEY_ID"),
        (answer("XAdminUserNotFound", 404), "credentials that the server refuses", "AWS_ACCESS_KEY_ID"),
        (answer("ExpiredToken"), "credentials that the server refuses", "AWS_ACCESS_KEY_ID"),
        (answer("AccessDenied", 403), "access denied", "Allow this user"),
        (answer("NoSuchBucket", 404), "no bucket 'name'", "Create the bucket"),
        (answer("PermanentRedirect", 301), "a bucket of another region", "--s3-region"),
        (answer("SlowDown", 503), "too busy or not well", "Run it again later"),
        (answer("Strange", 599), "too busy or not well", "Run it again later"),
        (answer("EntityTooLarge"), "the answer EntityTooLarge", "server's log"),
        (answer("<b>\x1b[2J"), "the answer unknown", "server's log"),
        (exceptions.NoCredentialsError(), "no credentials", "AWS_PROFILE"),
        (exceptions.CredentialRetrievalError(provider="p", error_msg="a secret"), "could not be had", "AWS_PROFILE"),
        (exceptions.SSLError(endpoint_url="u", error="e"), "certificate", "AWS_CA_BUNDLE"),
        (exceptions.EndpointConnectionError(endpoint_url="u", error="e"), "no server", "Is the endpoint right"),
        (exceptions.ReadTimeoutError(endpoint_url="u", error="e"), "broke off (ReadTimeoutError)", "later"),
        (exceptions.ConnectionClosedError(endpoint_url="u"), "broke off (ConnectionClosedError)", "later"),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), "broke off", "later"),
        (exceptions.ParamValidationError(report="a secret"), "ParamValidationError", ""),
    ],
)  # fmt: skip
def test_errors_have_our_description_and_advice(error: Exception, found: str, advice: str) -> None:
    explained = s3_error(error, "name", "the lake cannot be written: ")
    assert found in explained.cause
    assert advice in explained.advice
    assert str(explained).startswith(f"the lake cannot be written: found {explained.cause}. {explained.advice}")
    assert "a secret" not in str(explained)


@pytest.mark.parametrize(
    ("error", "temporary"),
    [
        (answer("SlowDown", 503), True),
        (answer("Strange", 599), True),
        (answer("InternalError", 500), True),
        (exceptions.EndpointConnectionError(endpoint_url="u", error="e"), True),
        (exceptions.ConnectTimeoutError(endpoint_url="u"), True),
        (exceptions.ReadTimeoutError(endpoint_url="u", error="e"), True),
        (exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2), True),
        (exceptions.SSLError(endpoint_url="u", error="e"), False),
        (exceptions.NoCredentialsError(), False),
        (answer("AccessDenied", 403), False),
        (answer("NoSuchBucket", 404), False),
    ],
)
def test_a_temporary_failure_has_its_own_error_class(error: Exception, temporary: bool) -> None:
    assert isinstance(s3_error(error, "name", ""), S3UnavailableError) == temporary
    store = open_pack_store(PackLocation("s3://bucket/bodies", LOCAL))
    with pytest.raises(PackStoreError) as raised, store._convert_errors("a bucket"):
        raise s3_error(error, "name", "")
    assert raised.value.is_transient == temporary


def test_an_error_that_is_not_of_boto3_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        s3_error(ZeroDivisionError(), "name", "")


def test_errors_can_be_pickled() -> None:
    error = S3Error("no bucket", "Make it", "it cannot be read: ")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "it cannot be read: found no bucket. Make it"


@pytest.mark.parametrize(
    ("endpoint", "is_told"),
    [
        ("http://store.example:9000", True),
        ("http://10.0.0.7:9000", True),
        ("https://store.example", False),
        ("http://127.0.0.1:9000", False),
        ("http://localhost:9000", False),
        ("http://[::1]:9000", False),
    ],
)
def test_an_endpoint_without_tls_causes_one_warning(
    endpoint: str, is_told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unencrypted_connections, "_warned", set())
    s3_options(endpoint)
    s3_options(endpoint)
    assert caplog.text.count(f"the object store {endpoint} is reached without TLS") == is_told


class _Page(BaseHTTPRequestHandler):
    """Answers each request with a page, as a proxy does before a user has logged in."""

    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.end_headers()
        self.wfile.write(b"<html>Log in</html>")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_endpoint_that_answers_with_pages_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "user")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = S3Options(f"http://127.0.0.1:{server.server_port}", virtual_hosts=False)
        try:
            with pytest.raises(S3Error, match="cannot be listed: found an answer that is no list of objects"):
                S3Storage("s3://bucket/lake", options).list_first_names()
        finally:
            server.shutdown()
