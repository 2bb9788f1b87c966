"""Registries: mechanisms, algorithms, fleets, links and commands by name. One line registers a new one.

What comes with tern is a line `name: "module:attribute"` where the registry is made; what another package brings is an
entry point of the registry's group in its pyproject.toml; a program adds its own by `register`. Nothing is
imported before its first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar, cast

from ternhost.errors import UsageError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name, in the order of their registration, each imported at its first use."""

    def __init__(self, what: str, group: str, builtin: Mapping[str, str]) -> None:
        """what: how a message calls an entry. group: of entry points. builtin: name -> "module:attribute"."""
        self.what = what
        self.group = group
        self._places: dict[str, Any] = dict(builtin)
        self._loaded: dict[str, T] = {}
        self._complete = False

    def register(self, name: str, item: T) -> T:
        """Add an entry, or put another in its place, for this process. Returns the entry."""
        self._places[name] = None
        self._loaded[name] = item
        return item

    @contextmanager
    def lent(self, name: str, item: T) -> Iterator[None]:
        """Temporarily add or replace an entry."""
        places, loaded = dict(self._places), dict(self._loaded)
        self.register(name, item)
        try:
            yield
        finally:
            for had, has in ((places, self._places), (loaded, self._loaded)):
                if name in had:
                    has[name] = had[name]
                else:
                    del has[name]

    def named(self, name: str) -> T:
        """The entry of that name. Raises UsageError, with the names that there are."""
        try:
            return self[name]
        except KeyError:
            raise UsageError(f"there is no {self.what} {name!r}", hint=f"one of: {', '.join(self)}") from None

    def __getitem__(self, name: str) -> T:
        if name not in self._loaded:
            if name not in self._places:
                self._complete_names()
            self._loaded[name] = self._load(self._places[name])
        return self._loaded[name]

    def _load(self, place: Any) -> T:
        if isinstance(place, str):
            module, _, attribute = place.partition(":")
            loaded: Any = importlib.import_module(module)
            return cast(T, getattr(loaded, attribute) if attribute else loaded)
        return cast(T, place.load())

    def _complete_names(self) -> None:
        if not self._complete:
            self._complete = True
            for point in entry_points(group=self.group):
                self._places.setdefault(point.name, point)

    def __iter__(self) -> Iterator[str]:
        self._complete_names()
        return iter(list(self._places))

    def __len__(self) -> int:
        self._complete_names()
        return len(self._places)
