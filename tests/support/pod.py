"""Programs under the conditions of `deploy/kubernetes`: no folder to write in, and no home.

The container has a mount namespace in which every file system is read-only. The user has a number
and nothing else. It may read all files, because the interpreter of the tests may belong to root.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import yaml

from tests.architecture.tree import ROOT

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


def in_pod(*command: str, volume: Path | None = None, **environment: str) -> list[str]:
    """Return a command that runs another one as in a pod of the manifests.

    Args:
        command: the program and its arguments.
        volume: a folder in which the program may write.
        environment: all its variables, beside those that Python needs here.
    """
    pod = yaml.safe_load(_DEPLOYMENT.read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    user = str(pod["securityContext"]["runAsUser"])
    needed = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    variables = [f"{key}={value}" for key, value in (needed | environment).items()]
    return [
        *("env", "-i", *variables, f"VOLUME={volume or ''}"),
        *("unshare", "--mount", "sh", "-c", _MOUNTS, "pod"),
        *("--reuid", user, "--regid", user, "--clear-groups", "--no-new-privs"),
        *("--inh-caps", _CAPABILITIES, "--ambient-caps", _CAPABILITIES),
        *("--bounding-set", _CAPABILITIES, *command),
    ]


def python_in_pod(*arguments: str, volume: Path | None = None, **environment: str) -> list[str]:
    """Return a command that runs this Python in a pod."""
    return in_pod(sys.executable, *arguments, volume=volume, **environment)
