"""Set-up installs what the locks name and resolves nothing, so a new release cannot break it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from tests.architecture.tree import ROOT, tracked_files

IMAGE_LOCK = "deploy/kubernetes/requirements.txt"
LOCKS = ("requirements.txt", "requirements-dev.txt", IMAGE_LOCK)
DOCKERFILE = "deploy/kubernetes/Dockerfile"
STEPS = ("Makefile", "scripts/check-package", "scripts/require", DOCKERFILE)
NEWER = "9999"
PIP_OF_PYTHON_3_11_0 = "pip==22.3"


def _locked(lock: str) -> dict[str, tuple[str, str]]:
    """Return version and marker of each package of a lock."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    found: dict[str, tuple[str, str]] = {}
    for entry in entries:
        pinned = re.match(r"([\w.-]+)==([\w.+!-]+)(?: ; (.+?))? +--hash=sha256:", entry)
        assert pinned, f"{lock}: not pinned with == and a hash: {entry[:80]}"
        found[canonicalize_name(pinned[1])] = (pinned[2], pinned[3] or "")
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_pins_every_package_with_a_hash(lock: str) -> None:
    assert len(_locked(lock)) > 10


def test_locks_agree() -> None:
    runtime, everything, image = map(_locked, LOCKS)
    assert runtime.items() <= everything.items()
    assert {name: one[0] for name, one in image.items()}.items() <= {
        name: one[0] for name, one in everything.items()
    }.items()
    assert {name for name, (_, marker) in runtime.items() if not marker} <= image.keys()


@pytest.mark.parametrize("step", STEPS)
def test_no_step_of_the_set_up_resolves(step: str) -> None:
    """Before 24, pip asks for the newest release of a package with an extra (pypa/pip 9644)."""
    text = (ROOT / step).read_text().replace("\\\n", " ")
    installs = re.findall(r"^.*\bpip install\b.*$", text, re.MULTILINE)
    assert [line for line in installs if "--no-deps" not in line] == []
    for line in re.findall(r"^.*requirements\S*\.txt$", text, re.MULTILINE):
        if "-r " in line:
            assert "--require-hashes" in line


@pytest.mark.parametrize("path", [".github/workflows/test.yml", DOCKERFILE])
def test_images_and_actions_are_named_with_a_digest(path: str) -> None:
    """Whoever owns a tag can move it."""
    text = (ROOT / path).read_text()
    names = re.findall(r"^(?:FROM| *- image:| *-? *uses:) (\S+)", text, re.MULTILINE)
    assert len(names) > 1
    pinned = r".+@([0-9a-f]{40}|sha256:[0-9a-f]{64})"
    assert [name for name in names if not re.fullmatch(pinned, name)] == []


def test_maven_and_its_plugin_are_named_with_a_version() -> None:
    """Without a version, each release of Maven takes another version of the plugin."""
    places = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/benchmarks/*.py")]
    assert [str(one) for one in places if '"dependency:' in one.read_text()] == []


def _newer_release(folder: Path, package: str) -> None:
    name = package.replace("-", "_")
    info = f"{name}-{NEWER}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{NEWER}-py3-none-any.whl", "w") as wheel:
        head = f"Metadata-Version: 2.1\nName: {package}\nVersion: {NEWER}\n"
        wheel.writestr(f"{info}/METADATA", head)
        tag = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.verify
@pytest.mark.timeout(900)
@pytest.mark.parametrize("pip", [PIP_OF_PYTHON_3_11_0, "pip"])
def test_set_up_when_every_package_has_a_newer_release_takes_the_locked_one(
    pip: str, tmp_path: Path
) -> None:
    """`pip` without a version is the newest one: the next release of pip must do the same."""
    releases = tmp_path / "releases"
    releases.mkdir()
    everything = _locked("requirements-dev.txt")
    for package in everything:
        _newer_release(releases, package)
    tree = tmp_path / "tree"
    for path in tracked_files():
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    own = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    environment = {key: value for key, value in os.environ.items() if key not in own}
    python = str(tree / ".venv" / "bin" / "python")
    base = Path(sys.base_prefix) / "bin" / "python3"
    subprocess.run([base, "-m", "venv", tree / ".venv"], check=True, env=environment)
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--upgrade", pip], check=True, env=environment
    )
    environment |= {"PIP_FIND_LINKS": str(releases), "UV_FIND_LINKS": str(releases)}
    make = shutil.which("make")
    assert make is not None
    subprocess.run([make, "setup"], cwd=tree, check=True, env=environment, timeout=800)
    listing = [python, "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    listed = json.loads(subprocess.check_output(listing, text=True, env=environment))
    installed: dict[str, str] = {canonicalize_name(one["name"]): one["version"] for one in listed}
    wanted = {
        name: version
        for name, (version, marker) in everything.items()
        if not marker or Marker(marker).evaluate()
    }
    assert {name: installed.get(name) for name in wanted} == wanted


def test_the_runtime_needs_no_package_for_development() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    direct = {canonicalize_name(re.split(r"[<>=]", one)[0]) for one in project["dependencies"]}
    runtime = _locked("requirements.txt")
    assert direct <= runtime.keys()
    assert "pyspark" not in runtime
