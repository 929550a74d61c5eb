#!/usr/bin/env python3
"""Do the C++ blocks of the pages compile? (Those of the course are excerpts; course_text.py compares them with the programs.)

    code_blocks.py COMPILER FLAGS...

A block that begins with the declaration of a type is compiled at namespace scope, every other one as the body of a function, with
the names of context.h in reach. A line "…" stands for lines that are left out, "(…)" behind a loop's word for its head. All blocks
are one translation unit, which is checked and not compiled to code: five seconds. Exit code 2: wrong arguments.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```cpp\n(.*?)^```$", flags=re.M | re.S)


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start()) + 2, match[1]


def compiled(number, name, line, block):
    """The block as C++ that says where it comes from."""
    block = re.sub(r"^#include <halftape/halftape\.h>$", "", block, flags=re.M)
    block = re.sub(r"^(\s*)…\s*$", r"\1", block, flags=re.M)
    block = re.sub(r"(for|while) \(…\)", lambda m: "for (;;)", block)
    kind = f"namespace block_{number} {{ using namespace halftape::formula;" if re.match(r"\s*(struct|class|template|namespace)\b", block) else f"void block_{number}() {{"
    return f'{kind}\n#line {line} "{name}"\n{block}}}\n'


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    number = 0
    code = ['#include "context.h"\n']
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        for line, block in blocks(page):
            number += 1
            code.append(compiled(number, page.relative_to(ROOT), line, block))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "blocks.cpp")
        file.write_text("\n".join(code), encoding="utf-8")
        command = sys.argv[1:] + ["-std=c++20", "-fsyntax-only", f"-I{ROOT}/include", f"-I{ROOT}/cmake/torch_compat",
                                 f"-I{ROOT}/tests/docs", str(file)]
        failed = subprocess.run(command).returncode != 0
    print(f"code_blocks: {number} blocks, {'refused' if failed else 'all compile'}")
    return 1 if failed or number < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
