"""A hook of mkdocs: pages that lie elsewhere in the repository are part of the site, and links work
in both places.

A link in a page is relative to where the page lies in the repository, so that it can be followed
there too. On the site the pages of docs/ lie at the top, and the others below their own folders.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/*",
    "examples/*/*",
    "firmware/BOARDS.md",
    "firmware/tern/compat.py",
    "firmware/tern/features.py",
    "shared_specs/*.md",
    "shared_specs/*.json",
    "shared_specs/figures/*.svg",
    "shared_specs/vectors/README.md",
    "tests/outside/*.py",
)
HOME = {"README.md": "index.md"}  # under another path

_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie elsewhere, under their paths in the repository."""
    for pattern in ELSEWHERE:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                uri = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, HOME.get(uri, uri), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Turn links between places in the repository into links between places on the site."""
    there = Path(page.file.abs_src_path).parent
    on_site = {Path(file.abs_src_path): file.src_uri for file in files if file.abs_src_path}

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        path = Path(os.path.normpath(there / target))
        if path not in on_site:
            _log.warning("%s links to %s, which the site does not have", page.file.src_uri, target)
            return match.group()
        relative = os.path.relpath(on_site[path], os.path.dirname(page.file.src_uri) or ".")
        return f"{before}{relative}{anchor or ''}{after}"

    return _LINK.sub(link, markdown)
