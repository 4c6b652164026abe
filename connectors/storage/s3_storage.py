"""A prefix in a bucket of an S3-compatible object store.

The server joins objects by copies (UploadPartCopy), so their bytes are sent only once. Conditional puts (If-Match,
If-None-Match) replace a version: if two processes send one at the same time, the server performs only one of them.

Uploads need bounded memory, and an object appears completely, or not at all. An object of up to `PART_BYTES` is sent
with one put. A larger one is sent in parts while the writer continues, one part at a time, so an open object needs
twice that much memory. Each request carries a CRC-32 of its bytes, which the server compares. Any request may be sent
twice if its answer was lost: puts and parts replace themselves. If a completion is refused, a mark on the object shows
whether an earlier attempt succeeded.

No library does this. boto3's `upload_fileobj` reads from a file and cannot be written to. A stream of pyarrow's S3 file
system gives the object its name when it is closed, even after an error. Neither finds out whether a completion whose
answer was lost has succeeded.
"""

from __future__ import annotations

import base64
import datetime
import io
import random
import re
import secrets
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from botocore import exceptions

from commitlake.connectors.storage.bandwidth_limit import BandwidthLimit, PacedBody
from commitlake.connectors.storage.errors import FileError, S3Error
from commitlake.connectors.storage.s3_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, s3_client, s3_options
from commitlake.connectors.storage.s3_errors import ERRORS, MISSING_OBJECT, NO_LISTING, error_code, s3_error
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.storage import (
    FileContent,
    FoundFile,
    LakeStorage,
    ReplacedError,
    Storage,
    check_name,
)
from commitlake.connectors.storage.uris import parse_s3_uri
from commitlake.schemas.shipped_manifest import Part

PART_BYTES = 8 << 20  # servers accept parts of at least 5 MiB, and at most 10,000 of them: 80 GB
_MARK = "commitlake-upload"
MIN_COPIED_BYTES = 5 << 20
"""Smallest part of an upload that is made of copies, except the last one."""
_CONFLICTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_FEW_NAMES = 3
_ANSWERS = 5
"""Attempts if an answer breaks off."""
_MAX_DELETED_KEYS = 1000
"""Limit of one request."""
_LAST_OFFSET = 1 << 60
"""An offset that is larger than any object; servers use 64-bit numbers."""
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_BROKEN_OFF = (exceptions.HTTPClientError, exceptions.IncompleteReadError)
_CRC_LETTERS = 8
"""Letters of a CRC-32 in Base64; checksums of checksums are longer."""


class S3Storage(Storage, LakeStorage):
    """Files below a prefix of an S3 bucket.

    Args:
        uri: `s3://bucket/prefix`.
        options: endpoint and region of the server; by default those of the environment.
        pace: limit of the bytes per second.
    """

    place_noun, file_noun = "a bucket", "an object"

    def __init__(self, uri: str, options: S3Options | None = None, pace: BandwidthLimit | None = None) -> None:
        self._root = parse_s3_uri(uri)
        super().__init__(str(self._root), pace)
        self._options = options or s3_options()

    def check_access(self) -> None:
        """Check that the bucket is accessible, with few attempts, because a user waits."""
        self.list_first_names()

    def list_first_names(self, prefix: str = "") -> list[str]:
        """Return a few names with a prefix, in a request with few retries, to check that objects can be listed."""
        folder = self._root.key("")
        with self._convert_errors("", "listed"):
            answer = s3_client(self._options, FEW_ATTEMPTS).list_objects_v2(
                Bucket=self._root.bucket, Prefix=folder + prefix, MaxKeys=_FEW_NAMES
            )
        if "Name" not in answer:  # as of a proxy's page, which is read as an empty answer
            raise S3Error(*NO_LISTING, f"{self.text} cannot be listed: ")
        names = (found["Key"].removeprefix(folder) for found in answer.get("Contents", ()))
        return [name for name in names if name]  # without the folder itself, which some tools create as an object

    def delete_unfinished_files(self) -> None:
        """Abort the uploads that killed writers have left, as far as the account may do so."""
        with self._convert_errors("", "listed"):
            for upload in self._list_entries("list_multipart_uploads", "", "Uploads"):
                self._abort_upload(upload["Key"], upload["UploadId"])

    def delete_old_unfinished_files(
        self, prefix: str, cutoff: datetime.datetime, may_delete: Callable[[str], bool]
    ) -> int:
        """Abort the uploads of killed writers, and return how many were aborted; see LakeStorage."""
        client, count = self._client, 0
        with self._convert_errors("", "listed"):
            for upload in self._list_entries("list_multipart_uploads", prefix, "Uploads"):
                if upload["Initiated"] < cutoff and may_delete(self._relative_name(upload)):
                    place = {"Bucket": self._root.bucket, "Key": upload["Key"]}
                    client.abort_multipart_upload(**place, UploadId=upload["UploadId"])
                    count += 1
        return count

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """Yield the names of all files in a folder and its subfolders."""
        yield from islice(self._list_names(folder), limit)

    def _list_names(self, folder: str) -> Iterator[str]:
        with self._convert_errors(folder, "listed"):
            names = map(
                self._relative_name, self._list_entries("list_objects_v2", f"{check_name(folder)}/", "Contents")
            )
            # Some tools create an object with the name of the folder and a slash.
            yield from (name for name in names if not name.endswith("/"))

    def files(self, prefix: str, suffix: str) -> Iterator[tuple[str, FoundFile]]:
        """Yield the files with a prefix and a suffix, ordered by name within each folder; see LakeStorage."""
        with self._convert_errors(prefix, "listed"):
            for found in self._list_entries("list_objects_v2", prefix, "Contents"):
                if found["Key"].endswith(suffix):
                    yield (
                        self._relative_name(found),
                        FoundFile(found["Size"], found["LastModified"].astimezone(datetime.UTC)),
                    )

    def _list_entries(self, operation: str, prefix: str, entries_key: str) -> Iterator[dict[str, Any]]:
        """Yield the entries in all pages of a listing of keys with a prefix."""
        for page in self._client.get_paginator(operation).paginate(
            Bucket=self._root.bucket, Prefix=self._root.key(prefix)
        ):
            yield from page.get(entries_key, ())

    def _relative_name(self, entry: Mapping[str, Any]) -> str:
        """Return the name of a listed object, relative to the prefix of this storage."""
        return str(entry["Key"]).removeprefix(self._root.key(""))

    def head(self, name: str) -> FoundFile | None:
        """Return the newest version of a file, or None if it does not exist."""
        place = self._bucket_and_key(name)
        with self._convert_errors(name, "read"), _suppress_missing_object():
            found = self._client.head_object(**place, ChecksumMode="ENABLED")
            crc = _parse_crc(found.get("ChecksumCRC32"))
            return FoundFile(int(found["ContentLength"]), found["LastModified"], found["ETag"], crc)
        return None

    def get(self, name: str, max_bytes: int) -> FileContent | None:
        """Read a file, or return None if it does not exist."""
        place = self._bucket_and_key(name)
        with self._convert_errors(name, "read"), _suppress_missing_object():
            answer = self._client.get_object(**place)
            # One byte more, to notice a larger object without reading all of it.
            data: bytes = answer["Body"].read(max_bytes + 1)
            if len(data) > max_bytes:
                raise self.too_large_error(name, max_bytes)
            return FileContent(data, answer["ETag"])
        return None

    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist; see LakeStorage."""
        # HEAD would not distinguish a missing object, bucket and user, because its answer has no body.
        with self._convert_errors(name, "read"):
            answer = self._request_range_once(name, 0, 1)
        if isinstance(answer, bytes) or answer is None:
            return None if answer is None else 0
        answer["Body"].close()
        return _parse_range(answer)[2]

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """Return a range of a file; an answer that breaks off, which boto3 does not retry, is requested again."""
        end = min(start + size, _LAST_OFFSET)
        # A range without bytes cannot be requested.
        if end <= start:
            return None if self.size(name) is None else b""
        with self._convert_errors(name, "read"):
            for attempt in range(_ANSWERS):
                answer = self._request_range_once(name, start, end)
                if isinstance(answer, bytes) or answer is None:
                    return answer
                try:
                    data = self._read_answer(name, answer, start, end)
                except _BROKEN_OFF:
                    if attempt == _ANSWERS - 1:
                        raise
                    time.sleep(random.uniform(0, min(2**attempt, 8)))  # noqa: S311 (so that readers do not come in step)
                else:
                    self.pace.wait_for_bytes(len(data))
                    return data
        raise AssertionError

    def _request_range_once(self, name: str, start: int, end: int) -> dict[str, Any] | bytes | None:
        """Send one request for a range, and return the answer with its body unread.

        Returns:
            The answer; no bytes if the range begins after the end of the object, and None if there is no object.
        """
        try:
            answer: dict[str, Any] = self._client.get_object(
                **self._bucket_and_key(name), Range=f"bytes={start}-{end - 1}"
            )
        except exceptions.ClientError as error:
            if error_code(error) in MISSING_OBJECT:
                return None
            if error_code(error) == "InvalidRange":
                return b""
            raise
        return answer

    def _read_answer(self, name: str, answer: Mapping[str, Any], start: int, end: int) -> bytes:
        """Return the bytes of an answer to a request for a range, after checking that none is missing."""
        first, last, size = _parse_range(answer)
        if first != start or last != min(end, size) - 1:
            answer["Body"].close()
            found = str(answer.get("ContentRange", "an answer without a range"))
            advice = "Is it an S3 server, with nothing between that changes its answers?"
            raise FileError(self.uri_of(name), f"an answer with the bytes {start} to {end - 1}", found, advice, start)
        data: bytes = answer["Body"].read(last - first + 2)  # one byte more than expected, to detect longer answers
        if len(data) != last - first + 1:
            raise exceptions.IncompleteReadError(actual_bytes=len(data), expected_bytes=last - first + 1)
        return data

    def put(self, name: str, data: bytes) -> None:
        """Write a file; an existing one is replaced. See Storage."""
        with self._convert_errors(name, "written"):
            self._put(name, data)

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """Write a file if it still has the given version, an object's ETag."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        with self._convert_errors(name, "written"):
            try:
                return self._put(name, data, **condition)["ETag"]
            except exceptions.ClientError as error:
                # The answer to If-Match is 404 if the object was deleted.
                if error_code(error) in _CONFLICTS | MISSING_OBJECT:
                    raise ReplacedError from None
                raise

    @contextmanager
    def open_write(self, name: str, *, syncs_folders: bool = False) -> Iterator[S3Upload]:  # noqa: ARG002
        """Open an object for writing, which appears when the block ends without an error; see LakeStorage."""
        place = self._bucket_and_key(name)
        with self._convert_errors(name, "written"), open_upload(self._client, place) as upload:
            yield upload

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        place = self._bucket_and_key(name)
        with self._convert_errors(name, "deleted"):
            self._client.delete_object(**place)

    def put_new(self, name: str, data: bytes) -> bool:
        """Write an object if none has its name, and return whether it was written; see LakeStorage."""
        try:
            self.put_if(name, data, None)
        except ReplacedError:  # also if an earlier attempt of this call has written it
            found = self.get(name, max_bytes=len(data) + 1) if self.size(name) == len(data) else None
            return found is not None and found.data == data
        return True

    def delete_all(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are ignored. See LakeStorage."""
        keys = [{"Key": self._bucket_and_key(name)["Key"]} for name in names]
        with self._convert_errors("", "deleted"):
            for start in range(0, len(keys), _MAX_DELETED_KEYS):
                request = {"Objects": keys[start : start + _MAX_DELETED_KEYS], "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._root.bucket, Delete=request)
                # A successful answer may list keys that were not deleted.
                for refused in answer.get("Errors", ()):
                    if refused.get("Code") not in MISSING_OBJECT:
                        raise exceptions.ClientError({"Error": refused}, "DeleteObjects")

    def compose(self, name: str, parts: Sequence[Part], part_file_name: Callable[[Part], str]) -> None:
        """Compose a file from parts on the server; the caller compares the size, and part names have checksums."""
        place = self._bucket_and_key(name)
        with self._convert_errors(name, "written"):
            upload = self._client.create_multipart_upload(**place)["UploadId"]
            try:
                self._copy_parts(place, upload, [part_file_name(part) for part in parts])
            except exceptions.ClientError as error:
                self._abort_upload(place["Key"], upload)
                if error_code(error) != "NoSuchUpload":  # it has ended: completed, or aborted by another process
                    raise
            except BaseException:
                self._abort_upload(place["Key"], upload)
                raise

    @property
    def _client(self) -> Any:
        return s3_client(self._options, MAX_ATTEMPTS)

    def _copy_parts(self, bucket_and_key: dict[str, str], upload_id: str, names: Sequence[str]) -> None:
        """Compose an object as a multipart upload whose parts the server copies from other objects."""
        numbered = []
        for number, name in enumerate(names, 1):
            answer = self._client.upload_part_copy(
                **bucket_and_key, UploadId=upload_id, PartNumber=number, CopySource=self._bucket_and_key(name)
            )
            numbered.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
        self._client.complete_multipart_upload(
            **bucket_and_key, UploadId=upload_id, MultipartUpload={"Parts": numbered}
        )

    def _put(self, name: str, data: bytes, **condition: str) -> Any:
        return self._client.put_object(
            **self._bucket_and_key(name),
            Body=PacedBody(data, self.pace),
            ContentLength=len(data),
            ChecksumCRC32=_checksum(data),
            **condition,
        )

    def _abort_upload(self, key: str, upload_id: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._root.bucket, Key=key, UploadId=upload_id)
        except ERRORS:
            return  # the next writer tries again

    @contextmanager
    def _convert_errors(self, name: str, verb: str) -> Iterator[None]:
        """Convert boto3's errors inside the block; `verb` names the operation in their messages."""
        try:
            yield
        except ERRORS as error:
            raise s3_error(error, self._root.bucket, f"{self.uri_of(name)} cannot be {verb}: ") from None

    def _bucket_and_key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._root.bucket, "Key": self._root.key(check_name(name))}


@contextmanager
def _suppress_missing_object() -> Iterator[None]:
    """Leave the block without an error if it requests an object that does not exist."""
    try:
        yield
    except exceptions.ClientError as error:
        if error_code(error) not in MISSING_OBJECT:
            raise


def _parse_range(answer: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return first byte, last byte and total size from an answer; -1 if it does not state them."""
    found = _RANGE.fullmatch(str(answer.get("ContentRange")))
    return (int(found[1]), int(found[2]), int(found[3])) if found else (-1, -1, -1)


def _parse_crc(text: str | None) -> int | None:
    """Return the CRC-32 of the whole object in an answer; None if it has none, or only one of parts."""
    if text is None or len(text) != _CRC_LETTERS:
        return None
    return int.from_bytes(base64.b64decode(text), "big")


class S3Upload(io.RawIOBase):
    """An upload of one object, as a file for sequential writing.

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
            raise ValueError(
                f"the upload of {self._place['Key']} was aborted before: nothing more can be written to it"
            )
        rest = memoryview(data)
        while rest:
            taken = min(len(rest), PART_BYTES - len(self._buffer))
            self._buffer += rest[:taken]
            rest = rest[taken:]
            if rest:
                self._send_buffer()
        return memoryview(data).nbytes

    def finish(self) -> None:
        """Send the remaining bytes, and complete the upload."""
        if self._upload_id is None:
            body = bytes(self._buffer)
            self._client.put_object(**self._place, Body=body, ContentLength=len(body), ChecksumCRC32=_checksum(body))
            return
        self._send_buffer()
        self._wait_for_part()
        assert self._thread is not None  # created with the upload
        self._thread.shutdown()
        self._complete_upload(self._upload_id)

    def abort(self) -> None:
        """Abort the upload; if the server does not answer, `delete_unfinished_files` aborts it later.

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
        # At most one part is under way: with the buffer, that is twice the size of a part in memory.
        self._wait_for_part()
        body, self._buffer = bytes(self._buffer), bytearray()
        self._size += len(body)
        number = len(self._parts) + 1
        part: dict[str, object] = {"PartNumber": number, "ChecksumCRC32": _checksum(body)}
        self._parts.append(part)
        assert self._thread is not None  # created with the upload
        self._sending = self._thread.submit(self._send_part, part, body)

    def _send_part(self, part: dict[str, object], body: bytes) -> None:
        answer = self._client.upload_part(
            **self._place, UploadId=self._upload_id, Body=body, ContentLength=len(body), **part
        )
        part["ETag"] = answer["ETag"]

    def _wait_for_part(self) -> None:
        if self._sending is not None:
            self._sending.result()
        self._sending = None

    def _complete_upload(self, upload_id: str) -> None:
        try:
            self._client.complete_multipart_upload(
                **self._place, UploadId=upload_id, MultipartUpload={"Parts": self._parts}
            )
        except exceptions.ClientError as error:
            if error_code(error) != "NoSuchUpload" or not self._is_completed():
                raise

    def _is_completed(self) -> bool:
        """Return whether this upload has become the object, although the answer to its completion was lost."""
        try:
            found = self._client.head_object(**self._place)
        except exceptions.ClientError:
            return False
        return bool(found["Metadata"].get(_MARK) == self._mark and found["ContentLength"] == self._size)


@contextmanager
def open_upload(client: Any, bucket_and_key: Mapping[str, str]) -> Iterator[S3Upload]:
    """Open an object for writing; it appears under its name when the `with` ends without an error.

    Args:
        client: a boto3 client.
        bucket_and_key: `Bucket` and `Key`.

    Raises:
        ClientError: or another error of boto3, after all attempts failed; see `s3_errors`.
    """
    upload = S3Upload(client, bucket_and_key)
    try:
        yield upload
        upload.finish()
    except BaseException:
        upload.abort()
        raise


def _checksum(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
