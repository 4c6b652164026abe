"""Checks of services on a network: object stores, HBase, name servers and brokers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from commitlake.jobs.doctor.findings import CheckState, DoctorFinding
from commitlake.schemas.errors import CommitLakeError

if TYPE_CHECKING:
    from commitlake.connectors.rocketmq.admin import Admin

_SECONDS = 5
_THREADS = 32
_MAX_VERSION = 100


def check_object_store(uri: str) -> DoctorFinding:
    """Check that an object store can be reached, by listing a prefix.

    Args:
        uri: `s3://bucket/prefix`.
    """
    from commitlake.connectors.storage.errors import S3Error
    from commitlake.connectors.storage.s3_clients import s3_options
    from commitlake.connectors.storage.s3_storage import S3Storage

    try:
        options = s3_options()
        names = S3Storage(uri, options).list_first_names()
    except S3Error as error:
        return DoctorFinding("s3", CheckState.MISSING, error.found, error.advice)
    where = f"{uri} at {options.endpoint or 'Amazon S3'}, region {options.region}"
    return DoctorFinding("s3", CheckState.OK, f"{where}: {'has objects' if names else 'is empty'}")


def check_hbase(address: str, table: str | None) -> DoctorFinding:
    """Check that HBase's Thrift server answers, and report whether the table exists.

    Args:
        address: address of the server, `HOST[:PORT]`.
        table: name of the table, if it is not the default.
    """
    from commitlake.connectors.hbase.client import Client
    from commitlake.connectors.hbase.options import HBaseOptions

    given = {"connectSeconds": str(_SECONDS), "retrySeconds": str(_SECONDS), "timeoutMs": str(_SECONDS * 1000)}
    if table:
        given["table"] = table
    try:
        options = HBaseOptions.of_address(address, **given)
        with Client(options) as client:
            tables = client.list_tables()
    except (CommitLakeError, OSError) as error:
        return DoctorFinding("hbase", CheckState.MISSING, str(error), "start HBase's Thrift server: hbase thrift start")
    if options.table not in tables:
        advice = "'commitlake archive --hbase' creates the table"
        return DoctorFinding(
            "hbase", CheckState.WARNING, f"{address} answers, but has no table {options.table}", advice
        )
    return DoctorFinding("hbase", CheckState.OK, f"{address} answers, and has the table {options.table}")


def check_registered_brokers(name_servers: str) -> Iterator[DoctorFinding]:
    """Check that name servers answer, and each broker that is registered with them.

    Args:
        name_servers: `HOST:PORT`, several with semicolons between.
    """
    from commitlake.connectors.rocketmq.admin import Admin
    from commitlake.connectors.rocketmq.options import ClientOptions

    try:
        with Admin(ClientOptions(name_servers, connect_seconds=_SECONDS, request_seconds=_SECONDS)) as admin:
            names = sorted(admin.clusters().broker_addr_table)
            if not names:
                found = f"{name_servers} answers, but has no broker registered"
                yield DoctorFinding("broker", CheckState.MISSING, found, "check the broker's namesrvAddr")
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="doctor") as pool:
                yield from pool.map(lambda name: _check_broker(admin, name), names)
    except (CommitLakeError, OSError) as error:
        yield DoctorFinding(
            "broker",
            CheckState.MISSING,
            str(error),
            "check that a name server is running there, and that this machine can connect",
        )


def _check_broker(admin: Admin, name: str) -> DoctorFinding:
    try:
        version = admin.runtime_info(name).get("brokerVersionDesc", "of an unknown version")
    except (CommitLakeError, OSError) as error:
        return DoctorFinding("broker", CheckState.MISSING, f"{name}: {error}", "is the broker running?")
    return DoctorFinding(
        "broker", CheckState.OK, f"{name} answers, RocketMQ {version[:_MAX_VERSION].removeprefix('V')}"
    )
