"""The commands of a page of the documentation, by the headings under which they stand."""

import re


def commands(page, heading):
    """The blocks of commands under a heading of a page, in order. An indented block is unindented."""
    text = page.read_text()
    section = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert section, f"{page} has no heading {heading!r}"
    blocks = re.findall(r"^( *)```sh\n(.*?)^ *```", section[1], re.MULTILINE | re.DOTALL)
    assert blocks, f"{heading!r} of {page} has no commands"
    unindented = []
    for indent, code in blocks:
        unindented.append(re.sub(rf"^{indent}", "", code, flags=re.MULTILINE))
    return unindented
