"""Runs tests while a part of tern is hidden: `python -m without PART EVERY TEST_FILE...`, in tests.

PART is a package beside the core, or a folder of `ternhost.reach`. Its modules cannot be imported,
as if its folder were deleted. EVERY n runs every n-th test. Without files, each command shows its
help, and the names of those that cannot are printed.
"""

import contextlib
import importlib
import io
import sys

import pytest


class Hidden:
    """A finder that refuses the modules of a part; and a plugin of pytest that picks tests."""

    def __init__(self, part, every):
        self.part, self.every = part, every
        for name in list(sys.modules):
            if self._hides(name):
                del sys.modules[name]
        package, _, name = part.rpartition(".")
        if package in sys.modules:
            vars(sys.modules[package]).pop(name, None)
        sys.meta_path.insert(0, self)

    def _hides(self, name):
        return name == self.part or name.startswith(f"{self.part}.")

    def find_spec(self, name, path=None, target=None):
        if self._hides(name):
            raise ModuleNotFoundError(f"No module named {name!r}: it is hidden", name=name)

    def pytest_collection_modifyitems(self, items):
        items[:] = items[:: self.every]


def command_lines():
    """The words of each command and, if it groups others, of each of its verbs."""
    from ternhost.cli.tree import COMMANDS
    from ternhost.command import CommandGroup

    for name in (*COMMANDS, *COMMANDS.missing):
        yield [name]
        with contextlib.suppress(ModuleNotFoundError):
            command = COMMANDS.get(name)
            if isinstance(command, CommandGroup):
                yield from ([name, verb] for verb in command.verbs)


def commands_without_help():
    """The names of commands that cannot show their help, "tern" for that of all."""
    from ternhost.cli import main

    missing = []
    for words in [[], *command_lines()]:
        shown = io.StringIO()
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(shown):
            main([*words, "--help"])
        if not shown.getvalue():
            missing.append(" ".join(words) or "tern")
    return missing


def main():
    part, every, *files = sys.argv[1:]
    if files:
        import terntools.testing.pytest_hardware
        import terntools.testing.pytest_plugin  # noqa: F401, pytest loads both, and they use ports
    hidden = Hidden(part, int(every))
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(part)
        sys.exit(f"{part} can still be imported")
    if files:
        sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-n", "0", *files], plugins=[hidden]))
    for words in sorted(commands_without_help()):
        print(words)


if __name__ == "__main__":
    main()
