"""Results that are mappings, too: they have the members of an object of JSON."""

from collections.abc import Iterator, Mapping
from typing import Any


class JsonObject(Mapping[str, Any]):
    """The base of results, which keep their object of JSON in `_json`."""

    _json: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self._json[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._json)

    def __len__(self) -> int:
        return len(self._json)

    def to_dict(self) -> dict[str, Any]:
        """Return the object that `--json` of the command prints, which `json.dumps` can write."""
        return dict(self._json)
