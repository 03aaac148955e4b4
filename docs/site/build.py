#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Makes the documentation site of README.md, docs/, the examples and the comments of the headers, and checks it.

Sphinx makes the pages (conf.py). Doxygen reads the headers, and reference.py makes pages of what it has read.
The status is 1 if Sphinx warns, a link or an anchor leads nowhere, or the reference lacks a public name. With a
folder for screenshots, Chromium draws each page 400 and 1400 pixels wide, and a page must not be wider.

usage: build.py SOURCE_DIR SITE_DIR WORK_DIR [SCREENSHOT_DIR]
"""

import pathlib
import re
import shutil
import subprocess
import sys

import check
import reference

here = pathlib.Path(__file__).resolve().parent
WIDTHS = (400, 1400)


def stage(source, work):
    """Puts the pages of the project and those of the reference into one folder, and returns it."""
    pages = work / "pages"
    shutil.rmtree(work, ignore_errors=True)
    pages.mkdir(parents=True)
    (pages / "index.md").symlink_to(source / "README.md")
    for name in ["CONTRIBUTING.md", "CHANGES.md", "docs", "tests"]:
        (pages / name).symlink_to(source / name)
    (pages / "examples").mkdir()
    programs = sorted(file for file in (source / "examples").iterdir() if file.suffix in (".cpp", ".cu"))
    for file in programs:
        (pages / "examples" / file.name).symlink_to(file)
    (pages / "examples/index.rst").write_text(
        "Examples\n========\n\n.. toctree::\n\n" + "".join(f"   {file.stem}\n" for file in programs))
    settings = (here / "Doxyfile").read_text() + f"""
INPUT = "{source}/include/colls"
INCLUDE_PATH = "{source}/include"
STRIP_FROM_PATH = "{source}/include"
OUTPUT_DIRECTORY = "{work}"
"""
    subprocess.run(["doxygen", "-"], input=settings, text=True, check=True)
    (pages / "reference").mkdir()
    reference.Writer(work / "xml", source / "include").write(pages / "reference")
    return pages


def chromium(*arguments):
    command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               "--allow-file-access-from-files", "--virtual-time-budget=5000", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout


def screenshots(site, work, folder):
    """Draws every page. Yields those that are wider than the window."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = sorted(site.rglob("*.html"))
    for page in pages:
        for width in WIDTHS:
            name = page.relative_to(site).with_suffix("").as_posix().replace("/", "_")
            chromium(f"--screenshot={folder / name}-{width}.png", f"--window-size={width},2000", page.as_uri())
    frames = "".join(f'<iframe width="{width}" src="{page.as_uri()}"></iframe>' for page in pages for width in WIDTHS)
    (work / "frames.html").write_text(frames + """<script>onload = () => {
  for (const frame of document.querySelectorAll("iframe")) {
    const wide = frame.contentDocument.documentElement.scrollWidth;
    frame.replaceWith(wide > frame.width ? `${frame.src} is ${wide} pixels wide in ${frame.width}\\n` : "");
  }
  document.body.append("measured");
}</script>""")
    shown = chromium("--dump-dom", "--window-size=1500,1000", (work / "frames.html").as_uri())
    yield from re.findall(r"file:\S+ is \d+ pixels wide in \d+", shown)
    if "measured</body>" not in shown:
        yield "the widths of the pages were not measured"


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    source, site, work, *pictures = (pathlib.Path(folder).resolve() for folder in sys.argv[1:])
    pages = stage(source, work)
    shutil.rmtree(site, ignore_errors=True)
    sphinx = ["sphinx-build", "-q", "-W", "--keep-going", "-d", work / "doctrees", "-c", here, pages, site]
    wrong = ["Sphinx: see above"] if subprocess.run(sphinx).returncode != 0 else []
    wrong += check.problems(source, site)
    for folder in pictures:
        wrong += screenshots(site, work, folder)
        print(f"screenshots: {folder}")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(list(site.rglob('*.html')))} pages, {len(wrong)} problems: {site / 'index.html'}")
    sys.exit(len(wrong) > 0)


main()
