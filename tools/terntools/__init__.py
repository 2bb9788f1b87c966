"""Tools for boards: find, deploy and watch them, emulate them, and test them."""

import ternhost  # noqa: F401 -- which sees to it that `tern` is the device library
