"""Tables that a program has handed over, by name, for the life of the process.

A run keeps the names of its data in its store, and nothing else of them: no copy of a table is
written to disk. The names are random, so that they tell nothing about the records, and so that a
run is never continued with other data by mistake.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from ternhost.datasets.schemas.schema import Schema
from ternhost.datasets.tables.reading import RawTable
from ternhost.errors import UsageError

PREFIX = "memory:"


@dataclass(frozen=True)
class InMemory:
    """A table, and what is known of it.

    - schema: None: the table is read as a file without one
    - label: the name of the label's column, instead of the schema's; empty: the schema's, or the
      last one
    - digest: tells different tables and schemas apart; it never leaves the process
    """

    table: RawTable
    schema: Schema | None
    label: str
    digest: bytes

    @classmethod
    def of(cls, table: RawTable, schema: Schema | None = None, label: str = "") -> "InMemory":
        """Return a table with what is known of it."""
        columns = schema and schema.toml()
        content = repr((table, columns, label)).encode(errors="backslashreplace")
        return cls(table, schema, label, sha256(content).digest())


_BY_NAME: dict[str, InMemory] = {}


def is_name(data: str) -> bool:
    """Return whether a value of --data names a table in memory, which may be another process's."""
    return data.startswith(PREFIX)


def keep(held: InMemory) -> str:
    """Keep a table for the life of the process, and return its name.

    The same table and schema get the same name again.
    """
    for name, other in _BY_NAME.items():
        if other.digest == held.digest:
            return name
    name = PREFIX + secrets.token_hex(4)
    _BY_NAME[name] = held
    return name


def keep_as(name: str, held: InMemory) -> None:
    """Keep a table under the name that it had in another process."""
    _BY_NAME[name] = held


def named(name: str) -> InMemory:
    """Return a table by its name. Raises UsageError if another process had it."""
    if name not in _BY_NAME:
        text = f"the data {name} were in the memory of the program that began the run"
        raise UsageError(text, "hand them over again: ternhost.resume(RUN, data=DATA)")
    return _BY_NAME[name]


def all_named() -> Mapping[str, InMemory]:
    """Return all tables by name, for a process that works for this one."""
    return dict(_BY_NAME)
