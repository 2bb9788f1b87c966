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
    """Return the folder of the cards."""
    specifications = next(iter(ternspecs.__path__))
    return Path(specifications) / "cards"


@lru_cache(maxsize=1)
def _manifest() -> tuple[dict[str, Any], ...]:
    """Return the entries of the manifest, one for each card."""
    manifest = json.loads((directory() / MANIFEST).read_text())
    return tuple(manifest["cards"])


def entries() -> list[dict[str, Any]]:
    """Return the manifest's entry of every card.

    Each has its `file`, `mechanism`, `epsilon`, `levels`, exact variance and hash.
    """
    return [dict(entry) for entry in _manifest()]


def load(mechanism: str, epsilon: int, levels: int | None = None) -> bytes | None:
    """Return the card of a mechanism that comes with tern, or None if there is none.

    epsilon: in millionths. levels: the card's number of levels; None: any number. Raises UsageError
    if the file has been changed.
    """
    for entry in _manifest():
        if entry["mechanism"] != mechanism or entry["epsilon_micro"] != epsilon:
            continue
        if levels not in (None, entry["levels"]):
            continue
        data = (directory() / str(entry["file"])).read_bytes()
        if cards.card_hash(data).hex() != entry["card_hash"]:
            text = f"the shipped card {entry['file']} has been changed"
            raise UsageError(text, "install tern again")
        return data
    return None
