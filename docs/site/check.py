# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Checks the finished site: every link and anchor leads to something, and the reference has every public name."""

import html.parser
import pathlib
import re
import urllib.parse
import zlib

import reference


class Page(html.parser.HTMLParser):
    """The anchors and the links of one page."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name") and tag != "meta":
                self.anchors.add(value)
            elif name in ("href", "src"):
                self.links.append(value)


def dead_links(site):
    """(page, link) of each link inside the site that leads nowhere."""
    pages = {file: Page(file.read_text()) for file in site.rglob("*.html")}
    for file, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (file.parent / urllib.parse.unquote(url.path)).resolve() if url.path else file
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(url.fragment)
            if not target.is_file() or anchor and target in pages and anchor not in pages[target].anchors:
                yield file.relative_to(site).as_posix(), link


NAME = re.compile(
    r"^(?:COLLS_\w+ *)*(?:(?:enum )?(?:class|struct|union|enum|concept|using) (?P<type>[\w:]+)"
    r"|(?:[^=(]*?[ *&:])??(?P<function>~?\w+|operator ?(?:\w+|\(\)|\W+))\(|[^(]*?\b(?P<variable>\w+) *(?:=|;|\[))")
BRACKETS = r"(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\w+)"


def documented(text):
    """(line, name) of each name in a header that has a /// comment and is neither private nor in detail."""
    in_detail, lines = False, text.split("\n")
    classes = {}  # indentation: [name, whether the members that follow are hidden]
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if re.match(r"namespace (\w+::)*detail\b", line):
            in_detail = True
        elif re.match(r"}  // namespace (\w+::)*detail$", line):
            in_detail = False
        elif (found := re.match(r" *(class|struct|union) (?:\[\[.*?\]\] )?([\w:]+)", line)) and not line.endswith(";"):
            classes = {at: entry for at, entry in classes.items() if at < indent}
            classes[indent] = [found[2], found[1] == "class"]
        elif re.fullmatch(r" *(public|private|protected):", line):
            classes[indent - 1][1] = "public" not in line
        if not line.lstrip().startswith("///") or lines[number + 1].lstrip().startswith("///"):
            continue
        outer = [entry for at, entry in classes.items() if at < indent]
        if in_detail or any(hidden for _, hidden in outer):
            continue
        declaration = re.split("[;{]", " ".join(row.strip() for row in lines[number + 1 : number + 8]))[0] + ";"
        declaration = re.sub(r"\[\[.*?\]\] *", "", declaration)
        declaration = re.sub(r"template ?<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*> *", "", declaration)
        declaration = re.sub(rf"^(requires ?{BRACKETS} *)+", "", declaration)
        found = NAME.match(declaration)
        if found and not re.search(rf"::{found['function']}\(", declaration):  # a definition outside of its class
            name = found["type"] or found["function"] or found["variable"]
            yield number + 1, "::".join([name for name, _ in outer] + [name])


def inventory(site):
    """The names in the reference, without template arguments."""
    names = zlib.decompress((site / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode()
    names = re.findall(r"^(\S.*?) cpp:", names, flags=re.M)
    while any("<" in name for name in names):
        names = [re.sub(r" *<[^<>]*>", "", name) for name in names]
    return {name.split("::", at)[-1] for name in names for at in range(name.count("::") + 1)}


def missing_names(source, site):
    """(header:line, name) of each documented name of a header of the reference that the reference lacks."""
    known = inventory(site)
    for file in sorted((source / "include/colls").rglob("*.[hc]*")):
        header = file.relative_to(source / "include/colls").with_suffix("").as_posix()
        if reference.is_public(header):
            for line, name in documented(file.read_text()):
                if name not in known and not re.search(r"\boperator|~", name):
                    yield f"{file.relative_to(source)}:{line}", name


def problems(source, site):
    for page, link in dead_links(site):
        yield f"{page}: nothing at {link}"
    for where, name in missing_names(source, site):
        yield f"{where}: the reference lacks {name}"
