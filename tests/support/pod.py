"""Programs under the conditions of `deploy/kubernetes`: no folder to write in, and no home.

The container has a mount namespace in which every file system is read-only. The user has a number
and nothing else. It may read all files, because the interpreter of the tests may belong to root.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import yaml

from tests.architecture.tree import ROOT

VOLUME: Final = "/srv"
"""The folder of the volume; in the manifests it is `/state`."""
_DEPLOYMENT: Final = ROOT / "deploy" / "kubernetes" / "deployment.yaml"
_CAPABILITIES: Final = "-all,+dac_read_search"
# The volume comes last: it has the mode of an emptyDir.
_MOUNTS: Final = """
cut -d ' ' -f 5 /proc/self/mountinfo | while read -r place; do
    mount -o remount,bind,ro "$place" || exit 1
done || exit 1
if [ -n "$VOLUME" ]; then
    mount -t tmpfs -o mode=2777 none "$VOLUME" || exit 1
fi
exec setpriv "$@"
"""


def in_pod(*command: str, has_volume: bool = False, **environment: str) -> list[str]:
    """Return a command that runs another one as in a pod of the manifests.

    Args:
        command: the program and its arguments.
        has_volume: whether there is a folder to write in, `VOLUME`, which ends with the pod.
        environment: all variables, beside those that Python needs here.
    """
    pod = _pod()
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    user = str(pod["securityContext"]["runAsUser"])
    needed = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    variables = [f"{key}={value}" for key, value in (needed | environment).items()]
    return [
        *("env", "-i", *variables, f"VOLUME={VOLUME if has_volume else ''}"),
        *("unshare", "--mount", "sh", "-c", _MOUNTS, "pod"),
        *("--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"),
        *("--inh-caps", _CAPABILITIES, "--ambient-caps", _CAPABILITIES),
        *("--bounding-set", _CAPABILITIES, *command),
    ]


def state_dir() -> str:
    """Return the state directory of the deployment, in the volume of such a pod."""
    (container,) = _pod()["containers"]
    (given,) = (one["value"] for one in container["env"] if one["name"] == "STATE_DIR")
    (mount,) = container["volumeMounts"]
    return str(given).replace(mount["mountPath"], VOLUME, 1)


def _pod() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_DEPLOYMENT.read_text())["spec"]["template"]["spec"]
    return found


def python_in_pod(*arguments: str, has_volume: bool = False, **environment: str) -> list[str]:
    """Return a command that runs this Python in a pod."""
    return in_pod(sys.executable, *arguments, has_volume=has_volume, **environment)
