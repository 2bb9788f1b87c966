"""Makes the site of the documentation: `make docs` runs this.

The site has the same folders as the repository, so that a link between two pages works in both
places. This program copies the pages, and the files that they link to, into build/pages, writes the
generated part of the reference beside them, and lets Zensical make the site out of all that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import reference_pages
import yaml

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/pages"  # as mkdocs.yml says
_LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


def pages_in(menu: Any) -> list[str]:
    """The pages that a menu of mkdocs.yml names, by their paths in the repository."""
    if isinstance(menu, str):
        return [menu]
    if isinstance(menu, dict):
        return [page for below in menu.values() for page in pages_in(below)]
    return [page for below in menu for page in pages_in(below)]


def files_linked_from(page: str) -> list[str]:
    """The paths in the repository to which a page links, without anchors and without other sites."""
    folder = os.path.dirname(page)
    targets = _LINK.findall((ROOT / page).read_text())
    return [os.path.normpath(os.path.join(folder, target)) for target in targets]


def copy_pages(pages: list[str], folder: Path) -> None:
    """Copy pages, and every file that they link to, into a folder, under the same paths."""
    for page in pages:
        for path in (page, *files_linked_from(page)):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)


def prepare() -> None:
    """Write the pages of the site into build/pages."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    generated = reference_pages.pages()
    shutil.rmtree(PAGES, ignore_errors=True)
    copy_pages([page for page in pages_in(menu) if page not in generated], PAGES)
    for path, text in generated.items():
        (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / path).write_text(text)


def main() -> int:
    """Make the site in build/site. Returns the exit code of Zensical: 1 for a broken link."""
    prepare()
    zensical = Path(sys.executable).with_name("zensical")
    return subprocess.run(
        [zensical, "build", "--strict", "--clean"], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
