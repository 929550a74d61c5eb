#!/usr/bin/env python3
"""Puts the page together: assemble.py FOLDER OUT, where FOLDER holds web_lab.js and web_lab.wasm."""
import base64
import gzip
import pathlib
import sys

MOST = 1_000_000  # bytes


def main():
    built, out = map(pathlib.Path, sys.argv[1:])
    here = pathlib.Path(__file__).parent
    text = lambda *names: "\n".join((here / name).read_text() for name in names)
    worker = (built / "web_lab.js").read_text() + "\n" + text("worker.js")
    script = text("settings.js", "formats.js", "charts.js", "gradients.js", "widgets.js", "page.js").replace("'use strict';\n", "")
    wasm = gzip.compress((built / "web_lab.wasm").read_bytes(), 9, mtime=0)
    parts = {"@STYLE@": text("style.css"), "@WASM@": base64.b64encode(wasm).decode(), "@WORKER@": worker,
             "@SCRIPT@": "'use strict';\n" + script}
    page = text("page.html")
    for mark, part in parts.items():
        if page.count(mark) != 1 or "</script" in part or "</style" in part:
            sys.exit(f"assemble: {mark} cannot be put into the page")
        page = page.replace(mark, part)
    size = len(page.encode())
    if size > MOST:
        sys.exit(f"assemble: the page has {size} bytes, more than {MOST}")
    out.write_text(page)
    print(f"{out}: {size} bytes, {len(gzip.compress(page.encode()))} gzipped")


main()
