"""Certificates of a cluster with TLS."""

from pathlib import Path

import pytest

from coopgroup.errors import ToolMissingError
from coopgroup.testing.properties import write_certificates


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("coopgroup.testing.properties.find_spec", lambda name: None)
    with pytest.raises(ToolMissingError, match="install it with pip install trustme"):
        write_certificates(tmp_path / "tls")
    assert not (tmp_path / "tls").exists()
