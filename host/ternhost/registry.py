"""Registries of mechanisms, algorithms, fleets, links and commands by name.

One line registers a new entry.

An entry of tern itself is a line `name: "module:attribute"` where the registry is defined; an entry
of another package is an entry point of the registry's group in its pyproject.toml; a program calls
`register`. An entry is imported at its first use. An entry point whose package is not there is no
entry, but `named` says which package is missing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Generic, TypeVar

from ternhost.errors import UsageError
from ternhost.text import one_of

T = TypeVar("T")

LOADED_FILES: dict[str, Callable[[str], None]] = {}
"""The files of --with whose extensions this process has registered, by their absolute paths, each
with the function that does it. A process that works for this one must do the same.
"""


class Registry(Mapping[str, T], Generic[T]):
    """Entries by name, in the order of registration. Each is imported at its first use."""

    def __init__(self, what: str, group: str, builtin: Mapping[str, str]) -> None:
        """Make a registry.

        what: the word for an entry in messages, such as "mechanism". group: the group of entry
        points by which other packages add entries. builtin: tern's own entries, each as
        "module:attribute", by name.
        """
        self.what = what
        self.group = group
        # In order of registration: an EntryPoint, or None for an entry that `register` has put into
        # _loaded.
        self._places: dict[str, Any] = {}
        for name, place in builtin.items():
            self._places[name] = EntryPoint(name, place, group)
        self._loaded: dict[str, T] = {}
        self._missing: dict[str, str] = {}  # package of each entry point whose package is not there
        self._complete = False  # whether _places has the entry points of other packages

    def register(self, name: str, item: T) -> T:
        """Add or replace an entry in this process. Returns the entry."""
        self._places[name] = None
        self._loaded[name] = item
        return item

    @contextmanager
    def lent(self, name: str, item: T) -> Iterator[None]:
        """Add or replace an entry while the context is open."""
        places, loaded = dict(self._places), dict(self._loaded)
        self.register(name, item)
        try:
            yield
        finally:
            # Only this name is restored: other entries may have been imported meanwhile.
            _restore(name, self._places, places)
            _restore(name, self._loaded, loaded)

    def available(self) -> Iterator[T]:
        """Yield the entries, without those whose modules are missing."""
        for name in self:
            with suppress(ModuleNotFoundError):
                yield self[name]

    def named(self, name: str) -> T:
        """Return the entry of that name.

        Raises UsageError, which lists the names, or says which package would bring the entry.
        """
        try:
            return self[name]
        except KeyError:
            self.require_package(name)
            text = f"there is no {self.what} {name!r}"
            raise UsageError(text, hint=one_of(name, self)) from None

    def require_package(self, name: str) -> None:
        """Raise UsageError if the entry of that name comes with a package that is not there."""
        package = self.missing.get(name)
        if package is not None:
            text = f"{self.what} {name!r} comes with the package {package}, which is not installed"
            raise UsageError(text, hint=f"install {package}, or choose one of: {', '.join(self)}")

    @property
    def missing(self) -> Mapping[str, str]:
        """The package of each entry point that cannot be used, since its package is not there."""
        self._complete_names()
        return self._missing

    def __getitem__(self, name: str) -> T:
        """Return the entry of that name, imported at its first use. Raises KeyError."""
        if name not in self._loaded:
            if name not in self._places:
                self._complete_names()
            self._loaded[name] = self._places[name].load()
        return self._loaded[name]

    def _complete_names(self) -> None:
        """Add the entry points of other packages to the names, once.

        An entry of tern itself, or one that `register` has added, keeps its name.
        """
        if self._complete:
            return
        self._complete = True
        for entry_point in entry_points(group=self.group):
            package, _, _ = entry_point.module.partition(".")
            if not _is_there(package):
                self._missing[entry_point.name] = package
            else:
                self._places.setdefault(entry_point.name, entry_point)

    def __iter__(self) -> Iterator[str]:
        self._complete_names()
        return iter(list(self._places))

    def __len__(self) -> int:
        self._complete_names()
        return len(self._places)


def _restore(name: str, current: dict[str, Any], saved: Mapping[str, Any]) -> None:
    """Give a key of `current` the value that it has in `saved`, or delete it if it has none."""
    if name in saved:
        current[name] = saved[name]
    else:
        del current[name]


def _is_there(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # by a finder that hides it
        return False
