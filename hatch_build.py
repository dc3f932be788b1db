"""Description of the package on a package index: the README with links that lead somewhere from there.

In the repository the README links to files beside it. An index has none of these files, so a link becomes one to the
repository that `project.urls` names, and its text alone as long as no repository is named there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class ReadmeHook(MetadataHookInterface):
    """Build hook that hatchling finds in this file."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README to the metadata of the package."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        url = metadata.get("urls", {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, url)}


def absolute(text: str, url: str) -> str:
    """A Markdown text with its relative links turned to the repository at `url`, or to their text without one."""

    def turned(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if "://" in target or target.startswith("#"):
            return match.group(0)
        if not url:
            return "" if picture else label
        return f"{picture}[{label}]({url.rstrip('/')}/{'raw' if picture else 'blob'}/HEAD/{target})"

    # code between fences is kept as it is: an index of an index would read as a link
    return "".join(part if k % 2 else LINK.sub(turned, part) for k, part in enumerate(FENCE.split(text)))
