"""What the project's pages of Markdown contain."""

import re


def prose(path):
    """The text of a page without its fences."""
    return re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)


def anchors(path):
    """The anchors of a page's headings: the texts that may follow a # in a link to it."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
