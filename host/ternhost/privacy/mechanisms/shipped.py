"""The cards that come with tern, in shared_specs/cards, and their manifest."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import ternspecs
from tern import card as cards
from ternhost.errors import UsageError

MANIFEST = "manifest.json"


def directory() -> Path:
    """The folder of the cards."""
    return Path(next(iter(ternspecs.__path__))) / "cards"


@lru_cache(maxsize=1)
def _manifest() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((directory() / MANIFEST).read_text())["cards"])


def entries() -> list[dict[str, Any]]:
    """The manifest's entry of every shipped card.

    Each has its `file`, `mechanism`, `epsilon`, `levels`, exact variance and hash.
    """
    return [dict(entry) for entry in _manifest()]


def load(mechanism: str, epsilon: int, levels: int | None = None) -> bytes | None:
    """Return the shipped card of a mechanism at `epsilon` (micro), or None if there is none.

    levels: of the card; None: any number. Raises UsageError if the file has been changed.
    """
    for entry in _manifest():
        if (entry["mechanism"], entry["epsilon_micro"]) != (mechanism, epsilon):
            continue
        if levels not in (None, entry["levels"]):
            continue
        data = (directory() / str(entry["file"])).read_bytes()
        if cards.card_hash(data).hex() != entry["card_hash"]:
            text = f"the shipped card {entry['file']} has been changed"
            raise UsageError(text, "install tern again")
        return data
    return None
