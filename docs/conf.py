"""The site that "make docs" builds of these pages (scripts/docs.sh)."""

import os
import re

project = "Glimpse"
copyright = author = "the Glimpse authors"
release = os.environ.get("GLIMPSE_VERSION", "")
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
exclude_patterns = ["requirements.txt"]
myst_heading_anchors = 6
html_theme = "furo"
html_title = f"Glimpse {release}".strip()
html_copy_source = False
html_show_sphinx = False
suppress_warnings = ["myst.header"]  # a report begins below the headings of its page
# A command's "…" and placeholders are no language; the text stays as it is.
highlight_language = "none"


LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?![a-z]+:|#)[^)\s]+)\)")


def prepare(app, docname, source):
    """Turns links out of this folder into plain text, and README's links into the site's contents."""

    def path(target):
        return os.path.normpath(os.path.join(os.path.dirname(docname), target.partition("#")[0]))

    pages = [path(target) for _, target in LINK.findall(source[0])]
    source[0] = LINK.sub(lambda m: m[1] if path(m[2]).startswith("..") else m[0], source[0])
    if docname == root_doc:
        inside = dict.fromkeys(page for page in pages if not page.startswith(".."))
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(inside) + "\n```\n"


def setup(app):
    app.connect("source-read", prepare)
