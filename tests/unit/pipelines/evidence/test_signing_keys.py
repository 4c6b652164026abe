"""Keys of evidence: made once, read from a file of their owner or from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from commitlake.pipelines.evidence.documents import EvidenceError, compute_key_id
from commitlake.pipelines.evidence.signing_keys import (
    SECRET_VARIABLE,
    read_private_key,
    read_public_key,
    write_key_pair,
)


def test_a_key_and_its_public_one_have_the_same_id(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    key_id = write_key_pair(path)
    private = read_private_key(str(path), {})
    assert private is not None
    assert compute_key_id(private.public_key()) == compute_key_id(read_public_key(f"{path}.pub")) == key_id
    from_variable = read_private_key(None, {SECRET_VARIABLE: path.read_text()})
    assert from_variable is not None
    assert from_variable.private_bytes_raw() == private.private_bytes_raw()


def test_there_is_no_key_without_a_file_or_a_variable() -> None:
    assert read_private_key(None, {}) is None
    assert read_private_key(None, {SECRET_VARIABLE: ""}) is None


def test_a_link_to_a_key_is_refused(tmp_path: Path) -> None:
    write_key_pair(tmp_path / "key.pem")
    (tmp_path / "link.pem").symlink_to(tmp_path / "key.pem")
    with pytest.raises(EvidenceError):
        read_private_key(str(tmp_path / "link.pem"), {})


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = generate_private_key(SECP256R1())
    pem = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(EvidenceError, match="expected a private Ed25519 key"):
        read_private_key(None, {SECRET_VARIABLE: pem.decode()})
    path = tmp_path / "other.pub"
    path.write_bytes(
        other.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(EvidenceError, match="expected a public Ed25519 key"):
        read_public_key(str(path))
