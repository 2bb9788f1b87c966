"""Where the guides are, the pages of the documentation that messages name.

They are in docs/guides of a checkout, and in the package `ternguides` of a wheel.
"""

from pathlib import Path

import ternguides

# It is a package without a module of its own.
_FOLDER = Path(next(iter(ternguides.__path__))).resolve()


def guide(name: str) -> str:
    """Return the path of a guide, such as "absent.md", for a message.

    The path is short if the guide is below the working directory, as in a checkout.
    """
    page = _FOLDER / name
    here = Path.cwd()
    if page.is_relative_to(here):
        page = page.relative_to(here)
    return str(page)
