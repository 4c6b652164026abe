"""Erasures while archive and maintain run repeatedly in other processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from deltalake import DeltaTable

from commitlake.jobs.audit import command as audit
from commitlake.jobs.erase import command as erase
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.schemas.errors import ExitCode
from tests.support.archive_processes import ROOT
from tests.support.erased_lakes import archive, shop_message, traces
from tests.support.kills import kill_count
from tests.support.lakes import GrowingLake
from tests.support.logs import new_message

MAINTAIN = """
import sys
from commitlake.jobs.maintain import command
for line in sys.stdin:
    print(command.main(["--lake", sys.argv[1], "--quiet"]), flush=True)
"""


def test_concurrent_erasures_lose_no_message_and_restore_no_content(tmp_path: Path) -> None:
    rounds = kill_count(2)
    growing = GrowingLake(tmp_path)
    for number in range(rounds):
        mark = f"CANARY{number:03}X"
        properties = (("KEYS", f"order-{mark}"), ("UNIQ_KEY", f"7F{mark}"), ("phone", f"{mark}-0151"))
        secret = new_message(number, topic="topic-0", body=f"{mark} and more".encode(), properties=properties)
        growing.write([shop_message(number), secret])
        archive(growing)
    stop = threading.Event()
    worked: list[int] = []

    def archive_on() -> None:
        number = 1000
        while not stop.is_set():
            growing.write([shop_message(number)])
            worked.append(archive(growing).messages)
            number += 1

    command = [sys.executable, "-c", MAINTAIN, growing.lake.root]
    codes: list[int] = []
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as caring:

        def care_on() -> None:
            assert caring.stdin is not None
            assert caring.stdout is not None
            while not stop.is_set():
                caring.stdin.write("go\n")
                caring.stdin.flush()
                codes.append(int(caring.stdout.readline()))
            caring.stdin.close()

        threads = [threading.Thread(target=archive_on), threading.Thread(target=care_on)]
        for thread in threads:
            thread.start()
        try:
            for number in range(rounds):
                key = f"order-CANARY{number:03}X"
                arguments = ["--lake", growing.lake.root, "--key", key, "--reason", "a test", "--yes", "--quiet"]
                assert erase.main(arguments) == ExitCode.OK
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert sum(worked) == len(worked) > 0
    assert codes
    assert set(codes) <= {ExitCode.OK, ExitCode.REFUSED}  # an erasure may have replaced a file that it was merging
    follow_keys(growing.lake)
    rows = DeltaTable(growing.lake.uri("messages")).to_pyarrow_table()
    assert rows.num_rows == 2 * rounds + len(worked)
    assert "CANARY" not in repr(rows.to_pylist())
    assert "CANARY" not in repr(DeltaTable(growing.lake.uri("message_keys")).to_pyarrow_table().to_pylist())
    assert erase.main(["--lake", growing.lake.root, "--finish", "--now", "--quiet"]) == ExitCode.OK
    assert traces(Path(growing.lake.root)) == []
    store = ["--store", str(growing.store), "--local", "--threads", "1"]
    assert audit.main(["--lake", growing.lake.root, *store]) == ExitCode.OK
