"""Build step of hatchling: the README of a package index has absolute links.

README.md links to files of the repository by relative paths. A package index shows the README
without the repository, so the built metadata replace them by addresses below `project.urls.Source`,
at the tag of the version. GitHub, Gitea and Forgejo have addresses of this form.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def with_absolute_links(readme: str, *, source: str, version: str) -> str:
    """Return `readme` with links to the files of the tag `v<version>` below the URL `source`."""

    def absolute(link: re.Match[str]) -> str:
        view = "raw" if link["image"] else "blob"
        return f"{link['image']}{link['text']}({source}/{view}/v{version}/{link['path']})"

    return _LINK.sub(absolute, readme)


class ReadmeHook(MetadataHookInterface):
    """Set the field `readme` of the package's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Write the README with absolute links into `metadata`."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        # The version is dynamic too, and hatchling may set it after this hook.
        found = re.search(
            r'^__version__ = "(.+)"$',
            (Path(self.root) / "src" / "coopgroup" / "__init__.py").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        if found is None:
            raise ValueError("src/coopgroup/__init__.py has no line __version__ = ...")
        source = metadata["urls"]["Source"]
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": with_absolute_links(readme, source=source, version=found[1]),
        }
