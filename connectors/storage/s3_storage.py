"""A prefix in a bucket of an S3-compatible object store.

The server joins objects by copies (UploadPartCopy), so their bytes are sent only once. Conditional puts (If-Match,
If-None-Match) replace a version: if two processes send one at the same time, the server performs only one of them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from botocore import exceptions

from commitlake.connectors.storage.clients import FEW_ATTEMPTS, MAX_ATTEMPTS, s3_client
from commitlake.connectors.storage.options import S3Options
from commitlake.connectors.storage.pace import Pace, PacedBody
from commitlake.connectors.storage.s3_errors import ERRORS, MISSING_OBJECT, error_code, s3_error
from commitlake.connectors.storage.storage import Content, FoundFile, ReplacedError, Storage, checked
from commitlake.connectors.storage.upload import S3Upload, open_upload
from commitlake.connectors.storage.uris import parse_s3_uri
from commitlake.schemas.shipped import Part

MIN_COPIED_BYTES = 5 << 20
"""Smallest part of an upload that is made of copies, except the last one."""
_CONFLICTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_CRC_LETTERS = 8
"""Letters of a CRC-32 in Base64; checksums of checksums are longer."""


class S3Storage(Storage):
    """Objects under a prefix.

    Args:
        uri: `s3://bucket/prefix`.
        options: endpoint and region of the server.
        pace: limit of the bytes per second.
    """

    def __init__(self, uri: str, options: S3Options, pace: Pace | None = None) -> None:
        self._root = parse_s3_uri(uri)
        super().__init__(str(self._root), pace)
        self._options = options

    def check(self) -> None:
        """See Storage."""
        with self._errors("", "listed"):
            s3_client(self._options, FEW_ATTEMPTS).list_objects_v2(
                Bucket=self._root.bucket, Prefix=self._root.key(""), MaxKeys=1
            )

    def delete_unfinished(self) -> None:
        """See Storage; uploads are aborted, as far as this is allowed."""
        pages = self._client.get_paginator("list_multipart_uploads")
        with self._errors("", "listed"):
            for page in pages.paginate(Bucket=self._root.bucket, Prefix=self._root.key("")):
                for upload in page.get("Uploads", ()):
                    self._abort(upload["Key"], upload["UploadId"])

    def names(self, folder: str, limit: int | None = None) -> Iterator[str]:
        """See Storage."""
        yield from islice(self._listed(folder), limit)

    def _listed(self, folder: str) -> Iterator[str]:
        root, prefix = self._root.key(""), self._root.key(f"{checked(folder)}/")
        pages = self._client.get_paginator("list_objects_v2")
        with self._errors(folder, "listed"):
            for page in pages.paginate(Bucket=self._root.bucket, Prefix=prefix):
                keys = (found["Key"] for found in page.get("Contents", ()))
                # Some tools create an object with the name of the folder and a slash.
                yield from (key.removeprefix(root) for key in keys if not key.endswith("/"))

    def head(self, name: str) -> FoundFile | None:
        """See Storage."""
        place = self._place(name)
        with self._errors(name, "read"):
            try:
                found = self._client.head_object(**place, ChecksumMode="ENABLED")
            except exceptions.ClientError as error:
                if error_code(error) in MISSING_OBJECT:
                    return None
                raise
        crc = _parse_crc(found.get("ChecksumCRC32"))
        return FoundFile(int(found["ContentLength"]), found["LastModified"], found["ETag"], crc)

    def get(self, name: str, max_bytes: int) -> Content | None:
        """See Storage."""
        place = self._place(name)
        with self._errors(name, "read"):
            try:
                answer = self._client.get_object(**place)
                data: bytes = answer["Body"].read(max_bytes + 1)
            except exceptions.ClientError as error:
                if error_code(error) in MISSING_OBJECT:
                    return None
                raise
        if len(data) > max_bytes:
            raise self.too_large(name, max_bytes)
        return Content(data, answer["ETag"])

    def get_range(self, name: str, start: int, size: int) -> bytes | None:
        """See Storage."""
        place = self._place(name)
        with self._errors(name, "read"):
            try:
                answer = self._client.get_object(**place, Range=f"bytes={start}-{start + size - 1}")
                data: bytes = answer["Body"].read(size)
            except exceptions.ClientError as error:
                if error_code(error) in MISSING_OBJECT:
                    return None
                if error_code(error) == "InvalidRange":
                    return b""
                raise
        self.pace.take(len(data))
        return data

    def put(self, name: str, data: bytes) -> None:
        """See Storage."""
        with self._errors(name, "written"):
            self._put(name, data)

    def put_if(self, name: str, data: bytes, version: Any) -> Any:
        """See Storage; the version is the object's ETag."""
        condition = {"IfNoneMatch": "*"} if version is None else {"IfMatch": version}
        with self._errors(name, "written"):
            try:
                return self._put(name, data, **condition)["ETag"]
            except exceptions.ClientError as error:
                if error_code(error) in _CONFLICTS | MISSING_OBJECT:
                    raise ReplacedError from None
                raise

    @contextmanager
    def open_write(self, name: str) -> Iterator[S3Upload]:
        """Open an object for writing; it appears once the block has ended without an error."""
        place = self._place(name)
        with self._errors(name, "written"), open_upload(self._client, place) as upload:
            yield upload

    def delete(self, name: str) -> None:
        """See Storage."""
        place = self._place(name)
        with self._errors(name, "deleted"):
            self._client.delete_object(**place)

    def compose(self, name: str, parts: Sequence[Part], name_of: Callable[[Part], str]) -> None:
        """See Storage; the caller compares the size, and the names of its parts have their checksums."""
        place = self._place(name)
        with self._errors(name, "written"):
            upload = self._client.create_multipart_upload(**place)["UploadId"]
            try:
                self._copy(place, upload, [name_of(part) for part in parts])
            except exceptions.ClientError as error:
                self._abort(place["Key"], upload)
                if error_code(error) != "NoSuchUpload":  # it has ended: completed, or aborted by another process
                    raise
            except BaseException:
                self._abort(place["Key"], upload)
                raise

    @property
    def _client(self) -> Any:
        return s3_client(self._options, MAX_ATTEMPTS)

    def _copy(self, place: dict[str, str], upload: str, names: Sequence[str]) -> None:
        """Make an object of copies of others."""
        numbered = []
        for number, name in enumerate(names, 1):
            answer = self._client.upload_part_copy(
                **place, UploadId=upload, PartNumber=number, CopySource=self._place(name)
            )
            numbered.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
        self._client.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": numbered})

    def _put(self, name: str, data: bytes, **condition: str) -> Any:
        crc = base64.b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
        return self._client.put_object(
            **self._place(name),
            Body=PacedBody(data, self.pace),
            ContentLength=len(data),
            ChecksumCRC32=crc,
            **condition,
        )

    def _abort(self, key: str, upload: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._root.bucket, Key=key, UploadId=upload)
        except ERRORS:
            return  # the next writer tries again

    @contextmanager
    def _errors(self, name: str, verb: str) -> Iterator[None]:
        """Explain the errors of boto3; the verb says what is done to the object or folder."""
        try:
            yield
        except ERRORS as error:
            raise s3_error(error, self._root.bucket, f"{self.place_of(name)} cannot be {verb}: ") from None

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self._root.bucket, "Key": self._root.key(checked(name))}


def _parse_crc(text: str | None) -> int | None:
    """Return the CRC-32 in an answer, or None if there is none of all bytes."""
    if text is None or len(text) != _CRC_LETTERS:
        return None
    return int.from_bytes(base64.b64decode(text), "big")
