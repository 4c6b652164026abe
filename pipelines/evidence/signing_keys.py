"""Keys of evidence: Ed25519, as PEM files.

A private key comes from a file that only its owner may read, or, as the same text, from the environment variable
`COMMITLAKE_EVIDENCE_SECRET`. A file in the work tree of a git repository is refused, because it could be committed by
mistake.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from commitlake.pipelines.evidence.documents import EvidenceError, compute_key_id
from commitlake.schemas.safe_store_files import UnsafeFileError, create_file, read_file

SECRET_VARIABLE = "COMMITLAKE_EVIDENCE_SECRET"  # noqa: S105 (the name of a variable)
PUBLIC_SUFFIX = ".pub"
_MAX_BYTES = 64 << 10
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NEVER_REPLACED = "a key is never replaced: name another file"
_MAKE_ONE = "'commitlake evidence key --out FILE' creates one"


def write_key_pair(path: Path) -> str:
    """Write a new private key, and its public key next to it as `PATH.pub`; return the key id.

    Raises:
        EvidenceError: if one of the files exists already, or the folder is in the work tree of a git repository.
    """
    _check_outside_repository(path)
    public_path = path.with_name(path.name + PUBLIC_SUFFIX)
    # Both before either is written: otherwise a private key without a public key could remain.
    for file in (path, public_path):
        if os.path.lexists(file):
            raise EvidenceError(f"{file} exists already, and {_NEVER_REPLACED}")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    _write_key_file(path, private, 0o600)
    _write_key_file(public_path, public, 0o644)
    return compute_key_id(key.public_key())


def _write_key_file(path: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(create_file(path, may_replace=False), "wb") as file:
            # The file is still empty, and the umask may have changed the mode that it was created with.
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise EvidenceError(f"{path} exists already, and {_NEVER_REPLACED}") from None
    except OSError as error:
        raise EvidenceError(f"{path} cannot be written: {error.strerror or error}") from None


def read_private_key(path: str | None, environment: Mapping[str, str]) -> Ed25519PrivateKey | None:
    """Read the private key that signs evidence; None if none is configured.

    Args:
        path: its file; None for the environment variable.
        environment: environment variables; `COMMITLAKE_EVIDENCE_SECRET` is used if there is no path.

    Raises:
        EvidenceError: if the key cannot be used.
    """
    if path is not None:
        file = Path(path)
        _check_outside_repository(file)
        data = _read_key_file(file)
        _check_owner_only(file)
        return _parse_private_key(data, str(file))
    text = environment.get(SECRET_VARIABLE)
    return _parse_private_key(text.encode(), f"the variable {SECRET_VARIABLE}") if text else None


def read_public_key(path: str) -> Ed25519PublicKey:
    """Read a public key to check signatures with.

    Raises:
        EvidenceError: if the file does not contain one.
    """
    try:
        key = serialization.load_pem_public_key(_read_key_file(Path(path)))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise EvidenceError(
            f"{path}: expected a public Ed25519 key in PEM, such as the file FILE.pub that 'commitlake evidence key "
            "--out FILE' writes"
        )
    return key


def _parse_private_key(data: bytes, source_name: str) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise EvidenceError(f"{source_name}: expected a private Ed25519 key in PEM without a password; {_MAKE_ONE}")
    return key


def _read_key_file(path: Path) -> bytes:
    try:
        return read_file(path, limit=_MAX_BYTES)
    except UnsafeFileError as error:
        raise EvidenceError(f"{error}; {_MAKE_ONE}") from None
    except OSError as error:
        raise EvidenceError(f"{path}: the file with the key cannot be read: {error.strerror}; {_MAKE_ONE}") from None


def _check_owner_only(path: Path) -> None:
    status = path.stat()
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise EvidenceError(
            f"{path}: expected a file that only its owner may read, found mode {mode:04o}: run chmod 600"
        )
    # A file of another user could be replaced by that user; root could do it anyway.
    if hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0):
        raise EvidenceError(
            f"{path}: expected a file that belongs to this user, found one of user {status.st_uid}: a key of another "
            "user is not used"
        )


def _check_outside_repository(path: Path) -> None:
    for folder in path.absolute().resolve().parents:
        if (folder / ".git").exists():
            raise EvidenceError(
                f"{path} is in the Git repository {folder}, where a key may be committed by mistake: name a file "
                "outside every Git repository"
            )
