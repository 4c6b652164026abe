"""Packs in a bucket of an S3-compatible object store."""

from __future__ import annotations

import datetime
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore import exceptions

from commitlake.connectors.lake.packs.errors import (
    PackError,
    PackNameError,
    PackStoreError,
    PackStoreUnavailableError,
)
from commitlake.connectors.lake.packs.names import PackFile, parse_pack_name
from commitlake.connectors.storage.s3_clients import FEW_ATTEMPTS, MAX_ATTEMPTS, s3_client
from commitlake.connectors.storage.s3_errors import ERRORS, MISSING_OBJECT, error_code, s3_error
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.s3_storage import S3Upload, open_upload
from commitlake.connectors.storage.uris import parse_s3_uri

_ANSWERS = 5  # attempts if an answer breaks off, which boto3 does not retry
_MAX_DELETED_KEYS = 1000  # limit of one request
_LAST_OFFSET = 1 << 60  # larger than any object; servers use 64-bit numbers
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_BROKEN_OFF = (exceptions.HTTPClientError, exceptions.IncompleteReadError)


class S3PackStore:
    """Packs under a prefix, without a connection: it can be pickled, and every process has a client of its own.

    Args:
        root: URI of the prefix, `s3://bucket/prefix`.
        options: endpoint and region of the server.
    """

    def __init__(self, root: str, options: S3Options) -> None:
        self._root = parse_s3_uri(root)
        self._options = options

    @contextmanager
    def open_write(self, name: str) -> Iterator[S3Upload]:
        """See PackStore."""
        try:
            with open_upload(self._client(), self._place(name)) as upload:
                yield upload
        except ERRORS as error:
            raise self._store_error(error, f"{name} to be written") from None

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """See PackStore."""
        end = min(offset + length, _LAST_OFFSET)
        if end <= offset:
            self.size(name)  # raises an error if the pack does not exist
            return b""
        for attempt in range(_ANSWERS):
            try:
                return self._read_once(name, offset, end)
            except _BROKEN_OFF as error:
                broken = error
                time.sleep(random.uniform(0, min(2**attempt, 8)))  # noqa: S311 (so that readers do not come in step)
        raise self._pack_error(broken, name)

    def size(self, name: str) -> int:
        """See PackStore."""
        # HEAD would not distinguish a missing pack, bucket and user, because its answer has no body.
        answer = self._get(name, 0, 1)
        if answer is None:
            return 0
        answer["Body"].close()
        return _range_of(answer)[2]

    def check(self) -> None:
        """See PackStore."""
        try:
            s3_client(self._options, FEW_ATTEMPTS).list_objects_v2(
                Bucket=self._root.bucket, Prefix=self._root.key(""), MaxKeys=1
            )
        except ERRORS as error:
            raise self._store_error(error, "a bucket to write to") from None

    def list_packs(self, folder: str = "") -> Iterator[PackFile]:
        """See PackStore."""
        root = self._root.key("")
        pages = self._client().get_paginator("list_objects_v2")
        try:
            for page in pages.paginate(
                Bucket=self._root.bucket, Prefix=self._root.key(f"{folder}/" if folder else "store_date=")
            ):
                for found in page.get("Contents", ()):
                    name = found["Key"].removeprefix(root)
                    try:
                        store_date = parse_pack_name(name).store_date
                    except PackNameError:
                        continue
                    yield PackFile(name, store_date, found["Size"], found["LastModified"].astimezone(datetime.UTC))
        except ERRORS as error:
            raise self._store_error(error, "packs to be listed") from None

    def delete(self, names: Iterable[str]) -> None:
        """See PackStore."""
        keys = [{"Key": self._place(name)["Key"]} for name in names]
        try:
            for start in range(0, len(keys), _MAX_DELETED_KEYS):
                request = {"Objects": keys[start : start + _MAX_DELETED_KEYS], "Quiet": True}
                answer = self._client().delete_objects(Bucket=self._root.bucket, Delete=request)
                for refused in answer.get("Errors", ()):
                    if refused.get("Code") not in MISSING_OBJECT:
                        raise exceptions.ClientError({"Error": refused}, "DeleteObjects")
        except ERRORS as error:
            raise self._store_error(error, "packs to be deleted") from None

    def delete_unfinished(self, before: datetime.datetime) -> int:
        """See PackStore; deletes unfinished multipart uploads."""
        client, count = self._client(), 0
        pages = client.get_paginator("list_multipart_uploads")
        try:
            for page in pages.paginate(Bucket=self._root.bucket, Prefix=self._root.key("store_date=")):
                for upload in page.get("Uploads", ()):
                    if upload["Initiated"] < before:
                        place = {"Bucket": self._root.bucket, "Key": upload["Key"]}
                        client.abort_multipart_upload(**place, UploadId=upload["UploadId"])
                        count += 1
        except ERRORS as error:
            raise self._store_error(error, "unfinished uploads to be ended") from None
        return count

    def _read_once(self, name: str, offset: int, end: int) -> bytes:
        """Return the bytes from `offset` to `end`, or to the end of the pack."""
        answer = self._get(name, offset, end)
        if answer is None:
            return b""
        first, last, size = _range_of(answer)
        if first != offset or last != min(end, size) - 1:
            answer["Body"].close()
            said = str(answer.get("ContentRange", "an answer without a range"))
            advice = "Is it an S3 server, with nothing between that changes its answers?"
            raise PackError(name, offset, f"an answer with the bytes {offset} to {end - 1}", said, advice)
        data: bytes = answer["Body"].read(last - first + 2)  # one byte more than expected, to detect longer answers
        if len(data) != last - first + 1:
            raise exceptions.IncompleteReadError(actual_bytes=len(data), expected_bytes=last - first + 1)
        return data

    def _get(self, name: str, offset: int, end: int) -> dict[str, Any] | None:
        """Return the answer to one ranged GET with an unread body; None if the range begins after the end."""
        try:
            answer: dict[str, Any] = self._client().get_object(**self._place(name), Range=f"bytes={offset}-{end - 1}")
        except ERRORS as error:
            if isinstance(error, exceptions.ClientError) and error_code(error) == "InvalidRange":
                return None
            raise self._pack_error(error, name) from None
        return answer

    def _client(self) -> Any:
        return s3_client(self._options, MAX_ATTEMPTS)

    def _place(self, name: str) -> dict[str, str]:
        parse_pack_name(name)
        return {"Bucket": self._root.bucket, "Key": self._root.key(name)}

    def _store_error(self, error: Exception, expected: str) -> PackStoreError:
        explained = s3_error(error, self._root.bucket, "")
        kind = PackStoreUnavailableError if explained.is_transient else PackStoreError
        return kind(str(self._root), expected, explained.cause, explained.advice)

    def _pack_error(self, error: Exception, name: str) -> PackError:
        if isinstance(error, exceptions.ClientError) and error_code(error) in MISSING_OBJECT:
            advice = "Has it expired by a lifecycle rule? If not, restore it from a backup of the lake"
            return PackError(name, None, f"an object in {self._root}", "none", advice)
        return self._store_error(error, f"{name} to be read")


def _range_of(answer: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return first byte, last byte and total size from an answer; -1 if it does not state them."""
    found = _RANGE.fullmatch(str(answer.get("ContentRange")))
    return (int(found[1]), int(found[2]), int(found[3])) if found else (-1, -1, -1)
