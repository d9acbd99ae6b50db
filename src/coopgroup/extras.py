"""How to install the packages of an extra.

Error messages name the packages themselves, with the versions of our own metadata. So the command
in a message works for every kind of installation: from a clone, from a wheel or from an index.
"""

import re
from importlib.metadata import PackageNotFoundError, requires

_REQUIREMENT = re.compile(r"""(?P<package>[^;]+?)\s*;.*\bextra == ['"](?P<extra>[^'"]+)['"]""")


def install_command(*extras: str) -> str:
    """Return the command that installs the packages of extras, for the end of a message."""
    packages = [package for extra in extras for package in _packages(extra)]
    if not packages:
        return f"install coopgroup with its extra {' and '.join(map(repr, extras))}"
    return " ".join(["pip install", *(f"'{package}'" for package in packages)])


def _packages(extra: str) -> list[str]:
    try:
        lines = requires("coopgroup") or []
    except PackageNotFoundError:  # run from the sources, without an installation
        return []
    found = (_REQUIREMENT.fullmatch(line) for line in lines)
    return [one["package"] for one in found if one is not None and one["extra"] == extra]
