"""Privacy statements: what a run, a store or a board promises, as pages for people."""

from __future__ import annotations

from pathlib import Path

from ternhost.api import arguments
from ternhost.statement.find import find


def write_statement(what: str | Path, output: str | Path | None = None) -> dict[str, Path]:
    """Write the privacy statement of a run, a store or a board, as `tern privacy` does.

    what: the name or the directory of a run, a store, or a board such as "a0". output: the directory
    of the page; None: that of the run, or one named after a store or a board. Returns the path of
    each file by the ending of its name: html, md, and png if there is a picture. Raises TernError.
    """
    facts, place = find(arguments.path(what, "what"))
    if output is not None:
        place = Path(arguments.path(output, "output"))
    from ternhost.statement import page  # loads matplotlib

    files = page.write(facts, place)
    return {ending: Path(path) for ending, path in files.items()}
