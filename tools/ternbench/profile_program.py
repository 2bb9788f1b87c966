"""Names the Python functions of a board by their addresses, for `tern bench profile`.

It runs on the board (MicroPython), where id() is the address of an object.
"""

import sys


def _functions_of(owner, prefix, found):
    """Add each function of a module or class to `found`, and those of a module's classes."""
    for name in dir(owner):
        value = getattr(owner, name, None)
        kind = type(value)
        if kind is type and not isinstance(owner, type):
            if not name.startswith("__"):
                _functions_of(value, f"{prefix}.{name}", found)
        elif callable(value) and kind is not type:
            found.append((id(value), f"{prefix}.{name}"))


for module_name, module in list(sys.modules.items()):
    functions = []
    _functions_of(module, module_name, functions)
    _tell((module_name, id(module), functions))  # noqa: F821  # of the host's console
