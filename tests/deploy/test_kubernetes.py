"""The manifests have the schema of Kubernetes, and fit the application and each other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from coopgroup.metrics import METRICS
from deploy.kubernetes import app
from tests.architecture.tree import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS = sorted(FOLDER.glob("*.yaml"))
VERSION = "1.30"


def _documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def _named(name: str) -> dict[str, Any]:
    return _documents(FOLDER / f"{name}.yaml")[0]


def _container(name: str) -> dict[str, Any]:
    (found,) = _named(name)["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda one: one.stem)
def test_manifest_has_the_schema_of_kubernetes(path: Path) -> None:
    for document in _documents(path):
        if document["apiVersion"].startswith("keda.sh"):
            continue  # Kubernetes knows no schema of KEDA's
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_manifest_with_a_wrong_key_is_found() -> None:
    broken = _named("deployment")
    broken["spec"]["template"]["spec"]["terminationGracePeriod"] = 40
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def test_keda_and_hpa_ask_for_the_same() -> None:
    keda, hpa = _named("keda")["spec"], _named("hpa")["spec"]
    assert keda["scaleTargetRef"]["name"] == hpa["scaleTargetRef"]["name"]
    behaviour = keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] == 300
    assert hpa["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (
        hpa["minReplicas"],
        hpa["maxReplicas"],
    )
    metric = hpa["metrics"][0]["external"]["metric"]["name"]
    assert metric in METRICS
    (trigger,) = keda["triggers"]
    assert metric in trigger["metadata"]["query"]


@pytest.mark.parametrize("name", ["deployment", "statefulset"])
def test_workload_fits_the_application(name: str) -> None:
    """It has the paths of the server, the selected labels, no root and time to stop."""
    spec, container = _named(name)["spec"], _container(name)
    labels, pod = spec["selector"]["matchLabels"], spec["template"]["spec"]
    assert spec["template"]["metadata"]["labels"] == labels
    assert _named("disruption")["spec"]["selector"]["matchLabels"] == labels
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    # Closing takes up to about ten seconds more.
    assert pod["terminationGracePeriodSeconds"] > app.STOP_TIMEOUT_MS / 1000 + 10
    probes = {"livenessProbe": "/livez", "startupProbe": "/livez", "readinessProbe": "/readyz"}
    assert {one: container[one]["httpGet"]["path"] for one in probes} == probes
    assert [one["containerPort"] for one in container["ports"]] == [app.PORT]


@pytest.mark.parametrize("kind", ["deployment", "statefulset"])
def test_application_reads_the_variables_of_the_manifests(kind: str) -> None:
    text = Path(app.__file__).read_text()
    required = set(re.findall(r'environ\["(\w+)"\]', text))
    optional = set(re.findall(r'environ\.get\("(\w+)"', text))
    given = {one["name"] for one in _container(kind)["env"]}
    assert required - optional <= given <= required | optional
    assert all(name in str(app.__doc__) for name in required | optional)


def test_only_the_statefulset_has_static_ids() -> None:
    names = {
        kind: {one["name"] for one in _container(kind)["env"]}
        for kind in ("deployment", "statefulset")
    }
    assert names["statefulset"] - names["deployment"] == {"STATIC"}
    assert names["deployment"] - names["statefulset"] == {"STATE_DIR"}


def test_user_of_the_image_is_that_of_the_manifests() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    user = _named("deployment")["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert f"\nUSER {user}\n" in text


def test_dockerfile_has_no_findings() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, FOLDER / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
