"""Uploads in bounded memory: an object appears completely, or not at all.

An object of up to `PART_BYTES` is sent with one put. A larger one is sent in parts while the writer continues, one part
at a time, so an open object needs twice that much memory. Each request carries a CRC-32 of its bytes, which the server
compares. Any request may be sent twice if its answer was lost: puts and parts replace themselves. If a completion is
refused, a mark on the object shows whether an earlier attempt succeeded.

No library does this. boto3's `upload_fileobj` reads from a file and cannot be written to. A stream of pyarrow's S3 file
system gives the object its name when it is closed, even after an error. Neither finds out whether a completion whose
answer was lost has succeeded.
"""

from __future__ import annotations

import base64
import io
import secrets
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from botocore import exceptions

from commitlake.connectors.storage.s3_errors import error_code

PART_BYTES = 8 << 20  # servers accept parts of at least 5 MiB, and at most 10,000 of them: 80 GB
_MARK = "commitlake-upload"


class S3Upload(io.RawIOBase):
    """An object as a file that is written sequentially.

    `finish` makes the object appear, `abort` leaves nothing; see `open_upload`.

    Args:
        client: a boto3 client.
        place: `Bucket` and `Key`; an existing object is replaced.
    """

    def __init__(self, client: Any, place: Mapping[str, str]) -> None:
        super().__init__()
        self._client = client
        self._place = place
        self._buffer = bytearray()
        self._size = 0
        self._mark = secrets.token_hex(16)
        self._upload_id: str | None = None
        self._parts: list[dict[str, object]] = []
        self._thread: ThreadPoolExecutor | None = None
        self._sending: Future[None] | None = None

    def writable(self) -> bool:
        """Return True: the file can be written, but not read."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self._size + len(self._buffer)

    def write(self, data: Any, /) -> int:
        """Write all of `data`, whose items are bytes.

        Raises:
            ValueError: if the upload was aborted.
        """
        if self.closed:
            raise ValueError(f"the upload of {self._place['Key']} was aborted")
        rest = memoryview(data)
        while rest:
            taken = min(len(rest), PART_BYTES - len(self._buffer))
            self._buffer += rest[:taken]
            rest = rest[taken:]
            if rest:
                self._send_buffer()
        return memoryview(data).nbytes

    def finish(self) -> None:
        """Send the rest, and complete the upload."""
        if self._upload_id is None:
            body = bytes(self._buffer)
            self._client.put_object(**self._place, Body=body, ContentLength=len(body), ChecksumCRC32=_checksum(body))
            return
        self._send_buffer()
        self._wait()
        assert self._thread is not None  # created with the upload
        self._thread.shutdown()
        self._complete(self._upload_id)

    def abort(self) -> None:
        """Abort the upload. If the server cannot be reached, `delete_unfinished` removes the rest later.

        The file is closed, because a writer that still has data would begin another upload.
        """
        self.close()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        if self._upload_id is not None:
            with suppress(exceptions.ClientError, exceptions.BotoCoreError):
                self._client.abort_multipart_upload(**self._place, UploadId=self._upload_id)

    def _send_buffer(self) -> None:
        if self._upload_id is None:
            answer = self._client.create_multipart_upload(
                **self._place, ChecksumAlgorithm="CRC32", Metadata={_MARK: self._mark}
            )
            self._upload_id = answer["UploadId"]
            self._thread = ThreadPoolExecutor(1)
        self._wait()
        body, self._buffer = bytes(self._buffer), bytearray()
        self._size += len(body)
        number = len(self._parts) + 1
        part: dict[str, object] = {"PartNumber": number, "ChecksumCRC32": _checksum(body)}
        self._parts.append(part)
        assert self._thread is not None  # created with the upload
        self._sending = self._thread.submit(self._send, part, body)

    def _send(self, part: dict[str, object], body: bytes) -> None:
        answer = self._client.upload_part(
            **self._place, UploadId=self._upload_id, Body=body, ContentLength=len(body), **part
        )
        part["ETag"] = answer["ETag"]

    def _wait(self) -> None:
        if self._sending is not None:
            self._sending.result()
        self._sending = None

    def _complete(self, upload_id: str) -> None:
        try:
            self._client.complete_multipart_upload(
                **self._place, UploadId=upload_id, MultipartUpload={"Parts": self._parts}
            )
        except exceptions.ClientError as error:
            if error_code(error) != "NoSuchUpload" or not self._is_there():
                raise

    def _is_there(self) -> bool:
        """Return whether this upload has become the object, although the answer to its completion was lost."""
        try:
            found = self._client.head_object(**self._place)
        except exceptions.ClientError:
            return False
        return bool(found["Metadata"].get(_MARK) == self._mark and found["ContentLength"] == self._size)


@contextmanager
def open_upload(client: Any, place: Mapping[str, str]) -> Iterator[S3Upload]:
    """Open an object for writing; it appears under its name when the `with` ends without an error.

    Args:
        client: a boto3 client.
        place: `Bucket` and `Key`.

    Raises:
        ClientError: or another error of boto3, after all attempts failed; see `s3_errors`.
    """
    upload = S3Upload(client, place)
    try:
        yield upload
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def _checksum(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
