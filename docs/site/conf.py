# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""The settings of Sphinx. build.py puts the pages of the project and of the reference into its source folder."""

import pathlib
import re
import sys

from docutils import nodes
from docutils.parsers import Parser
from sphinx.domains.cpp import CPPDomain

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import reference

project = html_title = "colls"
copyright = "2026 The colls authors"
extensions = ["myst_parser"]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext", ".cpp": "program", ".cu": "program"}
include_patterns = ["index.md", "CONTRIBUTING.md", "CHANGES.md", "docs/*.md", "tests/README.md",
                    "examples/*.rst", "examples/*.cpp", "examples/*.cu", "reference/*.rst"]
myst_heading_anchors = 4
highlight_language = "text"
pygments_style, pygments_dark_style = "friendly", "monokai"
html_theme = "furo"
html_static_path = [str(pathlib.Path(__file__).parent / "style.css")]
html_css_files = ["style.css"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
smartquotes = False

# The pages by caption. A page of docs/ that is in none of the lists is an error.
CONTENTS = {
    "Guide": "docs/building docs/launching docs/clusters docs/calls docs/errors docs/recovery docs/training docs/gpu docs/environment"
             " docs/coming_from examples/index",
    "Reference": " ".join(f"reference/{page}" for page in reference.PAGES),
    "Extending": "docs/adding_an_algorithm docs/adding_a_transport docs/adding_a_carrier",
    "Results": "docs/benchmarks docs/benchmark_notes",
    "How it works": "docs/design docs/algorithms docs/failure_detection docs/protocol docs/shared_memory"
                    " docs/simulation docs/data_parallel docs/glossary",
    "Project": "tests/README CONTRIBUTING CHANGES",
}


class Program(Parser):
    """Makes a page of a source file."""

    supported = ("program",)

    def parse(self, inputstring, document):
        name = pathlib.Path(document.current_source).name
        page = nodes.section("", nodes.title(name, name), ids=["program"])
        page += nodes.literal_block(inputstring, inputstring, language="cpp")
        document += page


class Reference(CPPDomain):
    """The search finds a name once, and no parameters."""

    def get_objects(self):
        names = set()
        for each in super().get_objects():
            if not each[2].endswith("Param") and each[0] not in names:
                names.add(each[0])
                yield each


def prepare(app, docname, source):
    """A link whose text is the name of its page gets that page's title; the first page gets the contents."""
    source[0] = re.sub(r"\[(?:\w+/)?(\w+\.md)\]\(((?:[\w.]+/)*\1(?:#[\w-]+)?)\)", r"[](\2)", source[0])
    if docname == root_doc:
        source[0] += "\n```{toctree}\n:hidden:\nStart <self>\n```\n"
        for caption, pages in CONTENTS.items():
            lines = "\n".join("/" + page for page in pages.split()
                              if page in app.env.found_docs or not page.startswith("reference/"))
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n{lines}\n```\n"


def resolve_folder(app, env, node, contnode):
    """A link to a folder of the repository leads to its index, or is plain text if it has none."""
    folder = pathlib.PurePosixPath(node["refdoc"]).parent
    target = (folder / node["reftarget"]).as_posix()
    if f"{target}/index" in env.found_docs:
        uri = app.builder.get_relative_uri(node["refdoc"], f"{target}/index")
        return nodes.reference("", "", contnode, refuri=uri, internal=True)
    return contnode if pathlib.Path(app.srcdir, target).is_dir() else None


def setup(app):
    app.add_source_parser(Program)
    app.add_domain(Reference, override=True)
    app.connect("source-read", prepare)
    app.connect("missing-reference", resolve_folder)
