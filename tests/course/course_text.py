#!/usr/bin/env python3
"""Do the chapters of docs/course say what their programs print?

    tests/course/course_text.py BIN             every chapter; BIN has the programs course_NN_name
    tests/course/course_text.py BIN 03 11       these chapters
    tests/course/course_text.py BIN --seeds     also all columns of the table "Other seeds", of which
                                                it otherwise checks the first one
    tests/course/course_text.py BIN --update 03 writes the programs' words into these chapters, and
                                                figures and CSV beside them

docs/course/README.md says by how much a number may differ. Exit code: 0 all is well, 1 something
is not, 2 wrong arguments."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COURSE, SOURCES = ROOT / "docs" / "course", ROOT / "samples" / "course"
MINI = "../../samples/mini/mini.cpp"
PARTS = ["Predict", "Experiment", "Lesson", "Why", "Exercise", "For teachers"]
NUMBER = re.compile(r"(?<![\w.])[-−]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
CONSOLE = re.compile(r"^```console\n\$ (course_\w+)((?: --seed \d+)?)\n(.*?)^```$", re.M | re.S)
# "98 %" or "98 percent", and powers of two as "2^-24".
CLAIM = re.compile(r"(?<![\w.^])(\d+(?:\.\d+)?) (?:%|percent)|(?<![\w.])2\^(-?\d+)")
# Counted, not trained, in a program that trains as well: the table below this line, and the figure.
COUNTED = {"12_without_waiting": "every scale above 64 overflows"}

problems = []


def problem(where, what):
    problems.append(f"{where}: {what}")


def value(text):
    return float(text.replace(",", "").replace("−", "-"))


def tolerance(expected, exact):
    """By how much a number may differ from the one in the text: see docs/course/README.md."""
    if exact:
        return 0.0
    number = abs(value(expected))
    if 90 <= number <= 100:
        return 1.0
    if "." not in expected and "e" not in expected:
        return float(int(0.1 * number))
    decimals = len(expected.split("e")[0].split(".")[1]) if "." in expected else 0
    power = 10.0 ** int(expected.split("e")[1]) if "e" in expected else 1.0
    return max(5 * 10.0**-decimals * power, 0.1 * number)


def close(expected, found, exact):
    return abs(value(found) - value(expected)) <= tolerance(expected, exact) * (1 + 1e-9)


def difference(expected, found, exact):
    """What is wrong between two lines; None if nothing is."""
    if expected == found:
        return None
    words = [" ".join(NUMBER.sub("#", line).split()) for line in (expected, found)]
    if words[0] != words[1]:
        return f"the text has\n    {expected}\n  and the program prints\n    {found}"
    for a, b in zip(NUMBER.findall(expected), NUMBER.findall(found)):
        if not close(a, b, exact):
            return f"{a} in the text and {b} now, in\n    {expected}\n    {found}"
    return None


def compare(where, expected, found, exact, counted=None):
    expected, found = expected.splitlines(), found.splitlines()
    if len(expected) != len(found):
        problem(where, f"{len(expected)} lines in the text, {len(found)} now")
    in_counted = False
    for a, b in zip(expected, found):
        in_counted = a == counted or (in_counted and a != "")
        wrong = difference(a, b, exact or in_counted)
        if wrong:
            problem(where, wrong)


def compare_tables(where, expected, found, exact):
    """As compare(), for CSV: a number may also differ by 2 % of the largest one of its column."""
    rows, now = ([line.split(",") for line in text.splitlines()] for text in (expected, found))
    if [len(row) for row in rows] != [len(row) for row in now]:
        problem(where, "has other rows or columns now")
        return
    for column in range(len(rows[0])):
        cells = [(row[column], new[column]) for row, new in zip(rows, now)]
        numbers = [abs(value(old)) for old, _ in cells if NUMBER.fullmatch(old)]
        slack = 0 if exact else 0.02 * max(numbers, default=0)
        for old, new in cells:
            if old == new or (NUMBER.fullmatch(old) and NUMBER.fullmatch(new) and
                              (abs(value(old) - value(new)) <= slack or close(old, new, exact))):
                continue
            wrong = difference(old, new, exact)
            if wrong:
                problem(where, f"column '{rows[0][column]}': {wrong}")


def words_of_svg(text):
    text = re.sub(r"<style>.*?</style>", "", text, flags=re.S)
    return "\n".join(" ".join(part.split()) for part in re.split(r"<(?!/?tspan)[^>]*>", text)
                     if part.strip())


class Programs:
    """Runs each program once for each seed."""

    def __init__(self, folder):
        self.folder, self.done = Path(folder), {}

    def run(self, name, seed=""):
        if (name, seed) not in self.done:
            program = self.folder / name
            with tempfile.TemporaryDirectory() as out:
                try:
                    ran = subprocess.run([program, *seed.split(), out], capture_output=True,
                                         text=True, timeout=300)
                except (OSError, subprocess.TimeoutExpired) as error:
                    self.done[name, seed] = ("", {})
                    problem(name, str(error))
                    return self.done[name, seed]
                if ran.returncode or ran.stderr:
                    problem(name, f"exit code {ran.returncode}: {ran.stderr.strip()}")
                self.done[name, seed] = (ran.stdout, {file.name: file.read_text("utf-8")
                                                      for file in Path(out).iterdir()})
        return self.done[name, seed]


def check_parts(where, text, stem):
    number = int(stem[:2])
    if not re.match(rf"# {number}\. .+\?\n\n\w", text):
        problem(where, f"begins with '# {number}. A question?' and an introduction")
    if re.findall(r"^## (.*)$", text, re.M) != PARTS:
        problem(where, f"the parts are {', '.join(PARTS)}, in this order")
        return
    part = dict(zip(PARTS, re.split(r"^## .*\n", text, flags=re.M)[1:]))
    for name, least, most in [("Predict", 1, 9), ("Why", 2, 2)]:
        folded = re.findall(r"<details><summary>[^\n]+</summary>\n\n.+?\n\n *</details>", part[name], re.S)
        if not least <= len(folded) <= most or len(folded) != part[name].count("<details>"):
            problem(where, f"'{name}' has {least} folded answer{'s' * (least > 1)}, with empty lines inside")
    blocks = [block for block in CONSOLE.findall(part["Experiment"]) if block[0] == f"course_{stem}"]
    if not blocks:
        problem(where, f"'Experiment' has a console block that begins with '$ course_{stem}'")
    if not re.search(rf"!\[[^\]]{{40,}}\]\(figures/{stem}\.svg\)", part["Experiment"]):
        problem(where, f"'Experiment' shows figures/{stem}.svg with words of 40 letters or more")
    if f"scripts/course check {stem[:2]}" not in part["Exercise"]:
        problem(where, f"'Exercise' names 'scripts/course check {stem[:2]}'")
    if not re.search(rf"\]\(\.\./\.\./exercises/{stem[:2]}_\w+/README\.md\)", part["Exercise"]):
        problem(where, "'Exercise' links to its folder")
    if len(re.findall(r"^[*-] ", part["For teachers"], re.M)) != 3:
        problem(where, "'For teachers' has exactly three points")


def check_links(where, text):
    for link in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", text):
        if not (COURSE / link).exists():
            problem(where, f"links to {link}, which does not exist")


def check_program(where, text, stem, source):
    """A program is short, and lines of C++ in its chapter are its own, those of a header that it
    includes from its folder, or those of mini.cpp, if the chapter links to it."""
    if len(source.splitlines()) >= 100:
        problem(f"{stem}.cpp", f"has {len(source.splitlines())} lines; a program has fewer than 100")
    headers = [SOURCES / name for name in re.findall(r'^#include "(\w+\.h)"$', source, re.M)]
    parts = [source, *(header.read_text("utf-8") for header in headers if header.exists())]
    if f"]({MINI})" in text:
        parts.append((COURSE / MINI).read_text("utf-8"))
    known = {line.strip() for part in parts for line in part.splitlines()}
    for block in re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            if line.strip() and line.strip() != "…" and line.strip() not in known:
                problem(where, f"quotes a line that the program does not have: {line.strip()}")


def claims(text):
    """Percentages and powers of two in the prose."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [(m.group(0), m.group(1), m.group(2)) for m in CLAIM.finditer(prose)]


def check_claims(where, text, printed):
    percent = [(float(p), p) for p in re.findall(r"(\d+(?:\.\d+)?) %", printed)]
    powers = set(re.findall(r"2\^(-?\d+)", printed))
    for claim, share, power in claims(text):
        if power is not None:
            if power not in powers:
                problem(where, f"{claim} stands in no block of the course")
            continue
        decimals = len(share.split(".")[1]) if "." in share else 0
        half = 0.5 * 10.0**-decimals + 1e-9
        if share not in ("0", "100") and not any(abs(p - float(share)) <= half for p, _ in percent):
            problem(where, f"{claim} stands in no block of the course, not even rounded")


def check_figure(where, stem, files, exact):
    for ending in (".csv", ".svg"):
        committed, now = COURSE / "figures" / (stem + ending), files.get(stem + ending)
        if now is None or not committed.exists():
            problem(where, f"{stem + ending}: {'not committed' if now else 'not written'}")
            continue
        old = committed.read_text("utf-8")
        if ending == ".csv":
            compare_tables(f"figures/{stem}.csv", old, now, exact)
            continue
        compare(f"figures/{stem}.svg", words_of_svg(old), words_of_svg(now), exact)
        if not re.search(r"<title.*?>.+</title>\s*<desc.*?>.+</desc>", old) or len(old) > 30 * 1024:
            problem(committed.name, "has a title and a description, and at most 30 KB")
        if re.search(r"(href|src|url)\b|@import|<script", old):
            problem(committed.name, "loads nothing")


def check_seeds(programs, columns):
    """The table "Other seeds" of the contents: each number is one that the program prints."""
    where, text = "README.md", (COURSE / "README.md").read_text("utf-8")
    rows = re.findall(r"^\|(.*)\|$", text.split("## Other seeds")[-1], re.M)
    head = [cell.strip() for cell in rows[0].split("|")]
    for row in rows[2:]:
        cells = [cell.strip() for cell in row.split("|")]
        name = cells[0].strip("`")
        for seed, cell in zip(head[3:3 + columns], cells[3:]):
            printed = programs.run(name, f"--seed {seed.split()[-1]}")[0]
            found = NUMBER.findall(printed.split("\n", 1)[-1])  # not the line of settings
            for number in NUMBER.findall(cell):
                if not any(close(number, f, False) for f in found):
                    problem(where, f"{name} with {seed} prints nothing like {number}")


def update(path, programs):
    """Puts the programs' words into a chapter, and its figure beside it."""
    def replace(match):
        return f"```console\n$ {match[1]}{match[2]}\n{programs.run(match[1], match[2])[0]}```"
    text = path.read_text("utf-8")
    path.write_text(CONSOLE.sub(replace, text), "utf-8")
    (COURSE / "figures").mkdir(exist_ok=True)
    for name, content in programs.run(f"course_{path.stem}")[1].items():
        (COURSE / "figures" / name).write_text(content, "utf-8")


def main(arguments):
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        return 0
    updating, seeds = "--update" in arguments, "--seeds" in arguments
    words = [word for word in arguments if word not in ("--update", "--seeds")]
    if not words or any(word.startswith("-") for word in words) or (updating and len(words) < 2):
        print(__doc__, file=sys.stderr)
        return 2
    folder, chosen = words[0], words[1:]
    chapters = sorted(COURSE.glob("[0-9][0-9]_*.md"))
    unknown = [n for n in chosen if n not in {path.stem[:2] for path in chapters}]
    if unknown or not Path(folder).is_dir():
        print(f"course_text: no {'chapter ' + unknown[0] if unknown else 'folder ' + folder}",
              file=sys.stderr)
        return 2
    programs = Programs(folder)
    # What any chapter prints, another may name.
    printed = "\n".join(block[2] for path in chapters
                        for block in CONSOLE.findall(path.read_text("utf-8")))
    for path in chapters:
        if chosen and path.stem[:2] not in chosen:
            continue
        if updating:
            update(path, programs)
            continue
        text, name = path.read_text("utf-8"), f"course_{path.stem}"
        source = SOURCES / f"{path.stem}.cpp"
        if not source.exists():
            problem(path.name, f"{source.relative_to(ROOT)} is not there")
            continue
        code = source.read_text("utf-8")
        # What no seed changes is not trained, and has the same bits everywhere.
        exact, counted = "Seed::None" in code, COUNTED.get(path.stem)
        check_parts(path.name, text, path.stem)
        check_links(path.name, text)
        check_program(path.name, text, path.stem, code)
        check_claims(path.name, text, printed)
        for program, seed, block in CONSOLE.findall(text):
            compare(path.name, block, programs.run(program, seed)[0], exact, counted)
        if counted and counted not in text.splitlines():
            problem(path.name, f"has no table '{counted}'")
        check_figure(path.name, path.stem, programs.run(name)[1], exact or counted is not None)
    if not chosen:
        check_seeds(programs, 99 if seeds else 1)
        check_links("README.md", (COURSE / "README.md").read_text("utf-8"))
    for text in problems:
        print(text)
    if not updating:
        print(f"course_text: {len(chapters) if not chosen else len(chosen)} chapters, "
              f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    sys.exit(main(sys.argv[1:]))
