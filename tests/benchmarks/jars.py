"""Java libraries that a benchmark compares with, from Maven's repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from coopgroup.testing.maven import COPY_JARS

__all__ = ["classpath_of"]

_BUILD: Final = Path(__file__).parents[2] / "build" / "jars"
_FETCH_S_MAX: Final = 300


def classpath_of(pom: Path) -> str:
    """Return the class path of a pom's dependencies, which Maven copies on first use."""
    target = _BUILD / pom.parent.name
    marker = target / pom.name
    if not marker.exists() or marker.read_bytes() != pom.read_bytes():
        shutil.rmtree(target, ignore_errors=True)
        maven = shutil.which("mvn")
        assert maven is not None
        command = [maven, "-q", "-B", "--strict-checksums", "-f", str(pom), COPY_JARS]
        found = subprocess.run(
            [*command, f"-DoutputDirectory={target}"],
            check=False,
            timeout=_FETCH_S_MAX,
            capture_output=True,
            text=True,
        )
        if found.returncode != 0:
            raise RuntimeError(f"mvn: {found.stdout.strip().splitlines()[:1]}")
        shutil.copy(pom, marker)
    return f"{target}/*"
