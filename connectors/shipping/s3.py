"""A target in an S3-compatible object store.

Each part is an object, whose name contains its range and checksum, see `schemas.shipped`. The server makes a sealed
file from the parts by copies (UploadPartCopy), so the bytes are sent only once. Manifests are replaced by conditional
puts (If-Match, If-None-Match): if two agents send one at the same time, the server performs only one of them.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions

from commitlake.connectors.shipping.errors import ShipConflictError, ShipError, ShipUnavailableError
from commitlake.connectors.shipping.target import ShipTarget
from commitlake.connectors.storage.clients import FEW_ATTEMPTS, MAX_ATTEMPTS, s3_client
from commitlake.connectors.storage.errors import S3UnavailableError
from commitlake.connectors.storage.options import S3Options
from commitlake.connectors.storage.pace import Pace, PacedBody
from commitlake.connectors.storage.troubles import ERRORS, MISSING_OBJECT, error_code, trouble_of
from commitlake.connectors.storage.uris import parse_s3_uri
from commitlake.schemas.shipped import MAX_MANIFEST_BYTES, PARTS, Part, ShippedFile, part_name
from commitlake.schemas.store_files import check_relative

MIN_COPIED_BYTES = 5 << 20
"""Smallest part of an upload that is made of copies, except the last one."""
_CONFLICTS = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})


class S3Target(ShipTarget):
    """Target under a prefix of a bucket.

    Args:
        root: `s3://bucket/prefix`.
        options: endpoint and region of the server.
        pace: limit of the bandwidth.
    """

    has_parts = True

    def __init__(self, root: str, options: S3Options, pace: Pace) -> None:
        self._root = parse_s3_uri(root)
        self.text = str(self._root)
        self._options = options
        self._pace = pace
        self._tags: dict[str, str | None] = {}
        self._tried: dict[str, set[bytes]] = {}  # SHA-256 of manifests that may have been written

    def claim(self) -> None:
        """See ShipTarget; an object store has no locks, and the conditional put of the manifest replaces them."""
        with self._errors("the bucket"):
            s3_client(self._options, FEW_ATTEMPTS).list_objects_v2(
                Bucket=self._root.bucket, Prefix=self._root.key(""), MaxKeys=1
            )
            self._end_unfinished()

    def close(self) -> None:
        """See ShipTarget."""

    def names_in(self, folder: str, limit: int) -> list[str]:
        """See ShipTarget."""
        prefix = self._root.key(f"{folder}/")
        with self._errors(folder):
            found = self._client.list_objects_v2(Bucket=self._root.bucket, Prefix=prefix, MaxKeys=limit)
        return [each["Key"].removeprefix(prefix) for each in found.get("Contents", ())]

    def read_manifest(self, name: str) -> bytes | None:
        """See ShipTarget."""
        with self._errors(name):
            try:
                answer = self._client.get_object(**self._place(name))
                data: bytes = answer["Body"].read(MAX_MANIFEST_BYTES + 1)
            except exceptions.ClientError as error:
                if error_code(error) not in {"NoSuchKey", "404"}:
                    raise
                self._tags[name] = None
                return None
        if len(data) > MAX_MANIFEST_BYTES:
            raise ShipError(f"{self.text}/{name}: expected at most {MAX_MANIFEST_BYTES} bytes, found more")
        self._tags[name] = answer["ETag"]
        return data

    def read_range(self, name: str, offset: int, size: int) -> bytes | None:
        """Return a range of an object, or less if it ends before; None if it does not exist."""
        wanted = f"bytes={offset}-{offset + size - 1}"
        with self._errors(name):
            try:
                answer = self._client.get_object(**self._place(name), Range=wanted)
                data: bytes = answer["Body"].read(size)
            except exceptions.ClientError as error:
                if error_code(error) in MISSING_OBJECT:
                    return None
                if error_code(error) == "InvalidRange":
                    return b""
                raise
        self._pace.take(len(data))
        return data

    def replace_manifest(self, name: str, data: bytes) -> None:
        """See ShipTarget."""
        mine = hashlib.sha256(data).digest()
        tried = self._tried.setdefault(name, set())
        tried.add(mine)
        with self._errors(name):
            while True:
                tag = self._tags.get(name)
                condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
                try:
                    self._tags[name] = self._put(name, data, **condition)["ETag"]
                except exceptions.ClientError as error:
                    if error_code(error) not in _CONFLICTS | MISSING_OBJECT:
                        raise
                    # An earlier attempt, or an earlier manifest, may have been written, and the answer may be lost.
                    digest = hashlib.sha256(self.read_manifest(name) or b"").digest()
                    if digest not in tried or (digest != mine and self._tags[name] == tag):
                        self._tags[name] = tag
                        raise ShipConflictError(
                            f"{self.text}: {name} was replaced by another agent: stop one of the two"
                        ) from None
                    if digest != mine:
                        continue
                tried.clear()
                return

    def put(self, name: str, data: bytes, modified_ms: int = 0) -> None:  # noqa: ARG002
        """See ShipTarget."""
        with self._errors(name):
            self._put(name, data)

    def delete(self, name: str) -> None:
        """See ShipTarget."""
        with self._errors(name):
            self._client.delete_object(**self._place(name))

    def write_part(self, file: ShippedFile, part: Part, data: bytes) -> None:
        """See ShipTarget."""
        with self._errors(file.name):
            self._put(part_name(file.name, part), data)

    def has_part(self, file: ShippedFile, part: Part) -> bool:
        """See ShipTarget."""
        head = self._head(part_name(file.name, part))
        if head is None or head["ContentLength"] != part.size:
            return False
        return bool(head.get("ChecksumCRC32", _crc_text(part.crc)) == _crc_text(part.crc))

    def drop_parts(self, file: ShippedFile, parts: Iterable[Part]) -> None:
        """See ShipTarget."""
        for part in parts:
            self.delete(part_name(file.name, part))

    def part_names(self) -> Iterator[str]:
        """See ShipTarget."""
        prefix = self._root.key("")
        pages = self._client.get_paginator("list_objects_v2")
        with self._errors(PARTS):
            for page in pages.paginate(Bucket=self._root.bucket, Prefix=self._root.key(f"{PARTS}/")):
                yield from (found["Key"].removeprefix(prefix) for found in page.get("Contents", ()))

    def cut(self, file: ShippedFile, end: int) -> None:
        """See ShipTarget; the parts are deleted later, when a manifest without them is written."""

    def seal(self, file: ShippedFile) -> None:
        """See ShipTarget."""
        if not file.parts:
            self.put(file.name, b"")
            return
        with self._errors(file.name):
            upload = self._client.create_multipart_upload(**self._place(file.name))["UploadId"]
            try:
                self._compose(file, upload)
            except exceptions.ClientError as error:
                self._abort(self._place(file.name)["Key"], upload)
                if error_code(error) != "NoSuchUpload":  # it has ended: completed, or aborted by another agent
                    raise
            except BaseException:
                self._abort(self._place(file.name)["Key"], upload)
                raise
        found = self.sealed_size(file)
        if found != file.size:
            raise ShipUnavailableError(f"{self.text}/{file.name}: expected {file.size} bytes, found {found}")

    def sealed_size(self, file: ShippedFile) -> int | None:
        """See ShipTarget."""
        head = self._head(file.name)
        return None if head is None else int(head["ContentLength"])

    @property
    def _client(self) -> Any:
        return s3_client(self._options, MAX_ATTEMPTS)

    def _compose(self, file: ShippedFile, upload: str) -> None:
        numbered = []
        for number, part in enumerate(file.parts, 1):
            source = self._place(part_name(file.name, part))
            answer = self._client.upload_part_copy(
                **self._place(file.name), UploadId=upload, PartNumber=number, CopySource=source
            )
            tag = answer["CopyPartResult"]["ETag"]
            numbered.append({"PartNumber": number, "ETag": tag})
        self._client.complete_multipart_upload(
            **self._place(file.name), UploadId=upload, MultipartUpload={"Parts": numbered}
        )

    def _put(self, name: str, data: bytes, **condition: str) -> Any:
        return self._client.put_object(
            **self._place(name),
            Body=PacedBody(data, self._pace),
            ContentLength=len(data),
            ChecksumCRC32=_crc_text(zlib.crc32(data)),
            **condition,
        )

    def _head(self, name: str) -> dict[str, Any] | None:
        with self._errors(name):
            try:
                found: dict[str, Any] = self._client.head_object(**self._place(name), ChecksumMode="ENABLED")
            except exceptions.ClientError as error:
                if error_code(error) in MISSING_OBJECT:
                    return None
                raise
        return found

    def _place(self, name: str) -> dict[str, str]:
        check_relative(name)
        return {"Bucket": self._root.bucket, "Key": self._root.key(name)}

    def _end_unfinished(self) -> None:
        """Abort the uploads that a killed agent left below the prefix."""
        pages = self._client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=self._root.bucket, Prefix=self._root.key("")):
            for upload in page.get("Uploads", ()):
                self._abort(upload["Key"], upload["UploadId"])

    def _abort(self, key: str, upload: str) -> None:
        try:
            self._client.abort_multipart_upload(Bucket=self._root.bucket, Key=key, UploadId=upload)
        except ERRORS:
            return  # the next agent tries again

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except ERRORS as error:
            found = trouble_of(error, self._root.bucket).error(f"{self.text}, {name}: ")
            kind = ShipUnavailableError if isinstance(found, S3UnavailableError) else ShipError
            raise kind(str(found)) from None


def _crc_text(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()
