"""Tests of the broker's command line. Its service is tested with real clients."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.jobs.broker.command import main
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, ROCKETMQ, Dialect
from tests.servers.process import free_ports
from tests.support.indexed_stores import OPTIONS, write_indexed_store
from tests.support.jmq_stores import write_jmq_store
from tests.support.logs import messages, open_segment, write_store

SMALL = ["--segment-size", "1MiB", "--index-slots", "100", "--index-entries", "100", "--max-message-kib", "100"]


def run(tmp_path: Path, *arguments: str) -> int:
    """Return the exit code of a command that ends by itself."""
    return main(["--store", str(tmp_path / "store"), *SMALL, *arguments])


@pytest.mark.parametrize("place", ["lake/messages/store", "store/commitlog", "store/consumequeue/orders"])
def test_a_store_in_a_table_or_in_another_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "lake" / "messages" / "_delta_log").mkdir(parents=True)
    write_indexed_store(tmp_path / "store", 5, options=OPTIONS)
    assert main(["--store", str(tmp_path / place), *SMALL, "--listen", f"127.0.0.1:{free_ports(1)}"]) == ExitCode.USAGE
    assert "where unknown files may be deleted" in capsys.readouterr().err
    assert not (tmp_path / place / "config").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "localhost"], "--listen: expected IP:PORT, found 'localhost'"),
        (["--listen", "localhost:10911"], "--listen: expected an IP address, found 'localhost'"),
        (["--namesrv", "127.0.0.1:0"], "--namesrv: expected IP:PORT, found '127.0.0.1:0'"),
        (["--listen", "0.0.0.0:10911"], "expected one address that clients can connect to"),
        (["--broker", "a b"], "--broker: expected a name of 1 to 127 letters"),
        (["--segment-size", "1"], "segment_size_bytes: expected"),
        (["--queue-file-size", "30"], "consume_queue_file_size_bytes: expected"),
        (["--delay-levels", "soon"], "message_delay_level: expected delays such as"),
        (["--accounts", "/no/such/file"], "cannot read the file"),
        (["--role", "SLAVE"], "--role SLAVE needs one of --register and --ha-master"),
        (["--role", "SYNC_MASTER"], "--role SYNC_MASTER needs --ha-listen"),
        (["--ha-master", "127.0.0.1:1"], "--ha-master needs --role SLAVE"),
        (["--broker-id", "2"], "--broker-id: expected 0"),
        (["--role", "SLAVE", "--register", "127.0.0.1:1", "--broker-id", "0"], "expected a number above 0"),
        (["--layout", "jmq", "--role", "SLAVE", "--register", "127.0.0.1:1"], "--role and --layout jmq cannot be"),
        (["--layout", "jmq", "--ha-listen", "127.0.0.1:1"], "--ha-listen and --layout jmq cannot be"),
        (["--layout", "jmq", "--delay-levels", "1s"], "--delay-levels and --layout jmq cannot be used together"),
        (["--layout", "jmq", "--listen", "[::1]:10911"], "expected an IPv4 address for --layout jmq"),
        (["--layout", "boltmq", "--ha-listen", "127.0.0.1:1"], "--ha-listen and --layout boltmq cannot be"),
        (["--layout", "boltmq", "--listen", "[::1]:10911"], "expected an IPv4 address for --layout boltmq"),
        (["--layout", "jmq", "--segment-size", "1"], "journal_file_size_bytes: expected"),
        (["--store", ""], "--store: expected the path of a folder"),
        (["--store", "/dev/null"], "--store /dev/null: the store cannot be opened: expected a folder, found a device"),
        (["--store", "/dev/null/store"], "--store /dev/null/store: the store cannot be opened: Not a directory"),
        (
            ["--tls-config", "/no/such/file"],
            "--tls-config /no/such/file: cannot read the file: No such file or directory",
        ),
        (
            ["--tls-config", "/dev/null"],
            "--tls-config /dev/null: tls.server.keyPath and tls.server.certPath are not set",
        ),
        (["--tls-mode", "enforcing"], "--tls-mode enforcing needs --tls-config"),
        (["--listen", "127.0.0.1:2", "--ha-listen", "127.0.0.1:3"], "clients are also served on the port 2 below it"),
    ],
)
def test_wrong_options_are_reported_without_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert run(tmp_path, *arguments) == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert expected in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("folder", "layout"), [("journal", "rocketmq"), ("journal", "boltmq"), ("commitlog", "jmq")])
def test_a_store_of_another_layout_is_refused_and_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, layout: str
) -> None:
    (tmp_path / "store" / folder).mkdir(parents=True)
    assert run(tmp_path, "--layout", layout) == ExitCode.USAGE
    assert f"--layout {layout} does not fit the store in {tmp_path / 'store'}" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "store").iterdir()] == [folder]


@pytest.mark.parametrize(("layout", "dialect"), [("rocketmq", BOLTMQ), ("boltmq", ROCKETMQ)])
def test_a_store_of_another_dialect_is_refused_and_left_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str, dialect: Dialect
) -> None:
    data = open_segment(messages(3), 1 << 20, dialect=dialect)
    root = write_store(tmp_path / "store", [(0, data)])
    assert run(tmp_path, "--layout", layout) == ExitCode.USAGE
    expected = f"--layout {layout} does not fit the store in {root}, which has the layout {dialect.name.lower()}"
    assert expected in capsys.readouterr().err
    assert (root / "commitlog" / f"{0:020d}").read_bytes() == data


@pytest.mark.parametrize(
    "arguments",
    [
        ["--delete-hours", "25"],
        ["--disk-percent", "75,85"],
        ["--disk-percent", "90,85,75"],
        ["--flush", "never"],
        ["--segment-size", "nan"],
        ["--segment-size", "1.5KB"],
        ["--segment-size", "0"],
        ["--segment-mib", "inf"],
        ["--max-message-kib", "0"],
        ["--max-connections", "0"],
        ["--max-connections", "-5"],
        ["--transaction-check-max", "-1"],
        ["--transaction-check-interval", "0s"],
    ],
)
def test_wrong_values_are_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, *arguments)
    assert ended.value.code == ExitCode.USAGE


@pytest.mark.parametrize("layout", ["jmq", "boltmq"])
def test_files_of_another_size_are_refused_with_the_options_to_open_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layout: str
) -> None:
    if layout == "jmq":
        write_jmq_store(tmp_path / "store", 10)
    else:
        write_indexed_store(tmp_path / "store", 10, options=replace(OPTIONS, dialect=BOLTMQ))
    sizes: list[str] = []
    for option in ("--segment-size", "--queue-file-size"):
        assert run(tmp_path, "--layout", layout, *sizes) == ExitCode.USAGE
        hint = capsys.readouterr().err.splitlines()[-1]
        assert hint.startswith(f"  add {option} ")
        sizes += hint.split()[1:]
    assert sizes == ["--segment-size", "16384", "--queue-file-size", "352" if layout == "jmq" else "320"]


def test_index_files_of_another_size_are_refused_with_the_options_to_open_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_indexed_store(tmp_path / "store", 10)
    assert list((tmp_path / "store" / "index").iterdir())
    sizes = ("--segment-size", "16KiB", "--queue-file-size", "320", "--index-slots", "7")
    assert run(tmp_path, *sizes) == ExitCode.USAGE
    assert capsys.readouterr().err.splitlines()[-1].startswith("  give --index-slots and --index-entries")


def test_older_names_of_sizes_have_their_old_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_jmq_store(tmp_path / "store", 10)
    assert run(tmp_path, "--layout", "jmq", "--segment-mib", "0.015625", "--queue-entries", "15") == ExitCode.USAGE
    assert capsys.readouterr().err.endswith("  add --queue-file-size 352\n")


def test_a_secret_key_without_an_access_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMITLAKE_BROKER_SECRET_KEY", "a-secret-that-is-not-shown")
    assert run(tmp_path) == ExitCode.USAGE
    assert "a-secret-that-is-not-shown" not in capsys.readouterr().err


def test_a_port_in_use_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(tmp_path, "--listen", address, "--namesrv", "none") == ExitCode.USAGE
    assert f"{address}: cannot listen: Address already in use" in capsys.readouterr().err
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("has_accounts", [True, False])
def test_a_public_port_is_warned_of_unless_there_are_accounts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, has_accounts: bool
) -> None:
    if has_accounts:
        monkeypatch.setenv("COMMITLAKE_BROKER_ACCESS_KEY", "the-shop")
        monkeypatch.setenv("COMMITLAKE_BROKER_SECRET_KEY", "secret-of-the-shop")
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        listen = ["--listen", f"0.0.0.0:{port}", "--advertise", "127.0.0.1", "--namesrv", f"127.0.0.1:{port}"]
        assert run(tmp_path, *listen) == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert (f"warning: --listen 0.0.0.0:{port} without --accounts" in errors) is not has_accounts
    assert "warning: --namesrv" not in errors


@pytest.mark.parametrize("allowed", [[], ["--ha-allow", "10.0.0.0/8, 192.0.2.7,fd00::/64"]])
def test_a_public_port_for_slaves_is_warned_of_unless_addresses_are_limited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], allowed: list[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        address = f"0.0.0.0:{taken.getsockname()[1]}"
        listen = ["--listen", f"127.0.0.1:{free_ports(1)}", "--namesrv", "none", "--ha-listen", address]
        assert run(tmp_path, *listen, *allowed) == ExitCode.USAGE
    assert (f"warning: --ha-listen {address} without --ha-allow" in capsys.readouterr().err) is not bool(allowed)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--ha-listen", "127.0.0.1:1", "--ha-allow", "10.0.0.1/8"], "--ha-allow: expected IP addresses or networks"),
        (["--ha-listen", "127.0.0.1:1", "--ha-allow", "localhost"], "--ha-allow: expected IP addresses or networks"),
        (["--ha-allow", "10.0.0.1"], "has no effect without --ha-listen"),
    ],
)
def test_invalid_addresses_of_slaves_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert run(tmp_path, *arguments) == ExitCode.USAGE
    assert expected in capsys.readouterr().err


def test_a_port_for_slaves_that_is_in_use_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listen = ["--listen", f"127.0.0.1:{free_ports(1)}", "--namesrv", "none"]
        assert run(tmp_path, *listen, "--ha-listen", address) == ExitCode.USAGE
    assert f"{address}: cannot listen" in capsys.readouterr().err


def test_a_store_without_write_permission_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("commitlake.broker_lite.stores.engine.store_lock.os.open", refuse)
    assert run(tmp_path) == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert f"cannot be opened: Permission denied: {tmp_path / 'store'}" in errors
    assert "a folder that this user may write to" in errors


def test_a_full_disk_at_shutdown_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve(store: MessageStore, *_: object) -> None:
        with store:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("commitlake.broker_lite.server.run_server", serve)
    assert run(tmp_path, "--listen", "127.0.0.1:1") == ExitCode.FAILED
    errors = capsys.readouterr().err
    assert "could not be written to disk at shutdown: [Errno 28] No space left on device" in errors
    assert "the next start recovers it" in errors


def test_sigterm_shuts_the_broker_down_cleanly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = free_ports(2)

    def stop_when_ready() -> None:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", first)) == 0:
                    break
            threading.Event().wait(0.05)
        signal.raise_signal(signal.SIGTERM)

    stopper = threading.Thread(target=stop_when_ready)
    stopper.start()
    try:
        arguments = ["--listen", f"127.0.0.1:{first}", "--namesrv", f"127.0.0.1:{first + 1}"]
        assert run(tmp_path, *arguments) == ExitCode.OK
    finally:
        stopper.join()
    assert f"broker broker-a on 127.0.0.1:{first}" in capsys.readouterr().err
    assert not (tmp_path / "store" / "abort").exists()
    assert (tmp_path / "store" / "config" / "topics.json").exists()
