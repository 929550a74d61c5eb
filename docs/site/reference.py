"""The reference: one page for each public header, from its declarations and the comments beside them.

Doxygen says which symbols a header declares and on which line; the text comes from the header itself, so a page shows a
declaration as it was written, with its defaults. README.md beside this file says what is public and what counts as a comment.
"""
import collections
import os
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as xml

WINGS = {"autograd": "Tensors, ops and the tape", "nn": "Modules and losses", "optim": "Optimizers and schedules",
         "amp": "Mixed precision", "io": "Files, data and runs", "distributed": "Training in several processes",
         "core": "Dtypes, devices, random numbers, graphs", "cuda": "CUDA"}
# What the classes of the umbrella headers are spelled with, though none of those headers names it.
ALSO = ["core/dtype.h", "core/half.h", "core/scalar.h", "core/shape.h", "core/expanding_array.h", "core/check.h", "core/options.h",
        "autograd/tensor_base.h", "autograd/tensor_options.h", "nn/module_holder.h", "nn/modules/common.h"]
# Members that every module has, and which nn::Module and docs explain once. A module's comment gives the shapes of its forward().
OF_EVERY_MODULE = {"reset", "reset_parameters", "pretty_print", "forward", "name", "clone"}


def public_headers(root):
    """The headers that halftape.h names, itself or through the umbrella headers of the wings."""
    waiting, umbrellas, headers = ["halftape.h"], set(), list(ALSO)
    while waiting:
        header = waiting.pop(0)
        umbrellas.add(header)
        for name in re.findall(r'^#include "halftape/(.*)"', (root / header).read_text(encoding="utf-8"), flags=re.M):
            path = pathlib.PurePosixPath(name)
            umbrella = path.stem == path.parent.name or (root / path.with_suffix("")).is_dir()
            if umbrella and name not in umbrellas:
                waiting.append(name)
            if name not in headers and len((root / name).read_text(encoding="utf-8").split("\nnamespace")) > 1:
                headers.append(name)
    return sorted(headers, key=lambda h: ([*WINGS].index(h.split("/")[0]), h))


Symbol = collections.namedtuple("Symbol", "kind name scope line file owner")


def inside_data(member):
    return member.get("kind") == "variable"


def symbols(root, headers):
    """What Doxygen found, by header, in the order of the lines."""
    with tempfile.TemporaryDirectory(prefix="halftape_doxygen_") as work:
        settings = (root / "docs/site/Doxyfile").read_text(encoding="utf-8")
        settings += "INPUT = " + " ".join(f'"{root / h}"' for h in headers)
        settings += f'\nOUTPUT_DIRECTORY = "{work}"\nINCLUDE_PATH = "{root}/include"\n'
        done = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True, cwd=root)
        if done.returncode:
            raise SystemExit(f"site: doxygen failed: {done.stderr[-2000:]}")
        found = collections.defaultdict(dict)

        def add(kind, name, scope, location, owner):
            if location is not None:
                line = int(location.get("line"))
                header = os.path.relpath(os.path.realpath(root / location.get("file")), root)
                found[header].setdefault((line, name), Symbol(kind, name, scope, line, header, owner))

        for file in sorted(pathlib.Path(work, "xml").glob("*.xml")):
            compound = xml.parse(file).getroot().find("compounddef")
            if compound is None:  # the index, and the settings
                continue
            kind, name = compound.get("kind"), compound.findtext("compoundname")
            if re.search(r"\b(detail|internal)\b|<", name) or compound.get("prot") == "private":
                continue
            inside = kind in ("class", "struct")
            if inside:
                scope, _, own = name.rpartition("::")
                add(kind, own, scope, compound.find("location"), None)
            for member in compound.iter("memberdef"):
                if member.get("prot") == "private" or member.get("kind") == "friend":
                    continue
                if kind == "file" and member.get("kind") != "define" or member.findtext("name").endswith("_") and inside_data(member):
                    continue
                if kind not in ("class", "struct", "namespace", "file"):
                    continue
                add(member.get("kind"), member.findtext("name"), name if kind != "file" else "", member.find("location"),
                    name if inside else None)
    # Not ours: the structs and macros of DLPack's own header. Not for long: macros that a header takes back.
    ours = {h: set(re.findall(r"^ *# *define (HALFTAPE_\w+|FORWARD_HAS_DEFAULT_ARGS)", text, flags=re.M))
            - set(re.findall(r"^ *# *undef (\w+)", text, flags=re.M))
            for h in headers for text in [(root / h).read_text(encoding="utf-8")]}
    return {h: [s for _, s in sorted(found[h].items()) if s.scope.startswith("halftape") or s.name in ours[h]] for h in headers}


class Header:
    """A header's lines, and what stands beside a declaration in them."""

    def __init__(self, root, name):
        self.lines = (root / name).read_text(encoding="utf-8").split("\n")

    def purpose(self):
        """The comment with which the file begins."""
        head = []
        for line in self.lines:
            if not line.startswith("//"):
                break
            head.append(line[2:].removeprefix(" "))
        return head

    def nearest(self, line, name):
        """The line that names it: behind macros of several lines Doxygen's count is off by some."""
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        for off in sorted(range(-12, 13), key=lambda o: (abs(o), -o)):
            if 0 < line + off <= len(self.lines) and word.search(re.sub(r"//.*", "", self.lines[line + off - 1])):
                return line + off
        return line

    def start(self, line):
        """The first line, from 0, of the declaration that Doxygen found on `line`: its template's, or its type's."""
        at = line - 1
        while at > 0:
            before = self.lines[at - 1].split("//")[0].rstrip()
            if not before or re.search(r"[;{}:]$|^#|\\$", before) or re.match(r"\s*HALFTAPE_[A-Z_]+\(.*\)$", before):
                break
            at -= 1
        return at

    def statement(self, start, kind):
        """The declaration's text, and the index of its last line: a body of one line stays, a longer one is cut."""
        text, depth, at = "", 0, start
        for at in range(start, min(start + 80, len(self.lines))):
            line = self.lines[at]
            code = re.sub(r"\s*//.*$", "", line)
            if kind == "define":
                text += code + "\n"
                if not line.rstrip().endswith("\\"):
                    break
                continue
            for i, c in enumerate(code):
                if c in "([":
                    depth += 1
                elif c in ")]":
                    depth -= 1
                elif c == ";" and depth == 0:
                    return text + code[:i + 1], at
                elif c == "{" and depth == 0:
                    if kind == "enum":
                        return "\n".join(self.lines[start:self.closing(at) + 1]), self.closing(at)
                    if code.rstrip().endswith(("}", "};")):
                        return text + code, at
                    if kind == "variable":
                        continue
                    if kind == "function" and self.lines[at + 2:at + 3] == [re.match(r" *", self.lines[start])[0] + "}"]:
                        return text + code + " " + self.lines[at + 1].strip() + " }", at + 2
                    text += code[:i].rstrip()
                    return (re.sub(r"\s+:\s[^:]*$", "", text) if kind == "function" else text) + ";", at
            if kind == "function" and depth == 0 and code.rstrip().endswith("}"):
                return text + code, at
            text += code + "\n"
        return text.rstrip(), at

    def closing(self, at):
        while not re.match(r"\s*}|.*};", self.lines[at]):
            at += 1
        return at

    def own_comment(self, start, end):
        """The lines of a comment above a declaration, or behind it."""
        above, at = [], start - 1
        while at > 0 and re.match(r"#(endif|pragma|ifdef)\b|// clang-format", self.lines[at]):
            at -= 1
        mark = r"\s*///" if at >= 0 and re.match(r"\s*///", self.lines[at]) else r"\s*//(?!/)"
        while at >= 0 and re.match(mark, self.lines[at]):
            above.insert(0, re.sub(r"^\s*///? ?", "", self.lines[at]))
            at -= 1
        behind = [m[1] for line in self.lines[start:end + 1] if (m := re.search(r"[;{},(]\s*// (.*)", line))]
        following = end + 1
        while behind and following < len(self.lines) and re.match(r"\s{12,}// ", self.lines[following]):
            behind.append(re.sub(r"^\s*// ", "", self.lines[following]))
            following += 1
        return above + behind

    def comment_of_block(self, start, member):
        """The comment of the declarations above it, in a block without blank lines; in a class only one that is `//`."""
        at = start - 1
        while at > 0 and self.lines[at].strip() and not re.match(
                r"\s*(public|protected|private):|#|\s*(class|struct|namespace|enum)\b.*[{]$", self.lines[at]):
            if re.match(r"\s*//", self.lines[at]):
                end, mark = at, r"\s*///" if re.match(r"\s*///", self.lines[at]) else r"\s*//(?!/)"
                if member and mark == r"\s*///" or "clang-format" in self.lines[at]:
                    return []
                while re.match(mark, self.lines[at]):
                    at -= 1
                return [re.sub(r"^\s*///? ?", "", line) for line in self.lines[at + 1:end + 1]]
            at -= 1
        return []


def formulas(root):
    """What stands beside a formula in core/formula/, by its name."""
    found = {}
    for file in sorted((root / "core/formula").glob("*.h")):
        for comment, name, behind in re.findall(r"((?:^ *///.*\n)*)^struct (\w+) [^\n]*?\{(?:  // (.*))?$",
                                                file.read_text(encoding="utf-8"), flags=re.M):
            text = [behind] if behind else [re.sub(r"^ */// ?", "", c) for c in comment.strip().split("\n") if c]
            if text:
                found[name] = text
    return found


def common_options(root):
    """The options that mean the same wherever they are, from the table in options.md."""
    text = (root / "docs/site/options.md").read_text(encoding="utf-8")
    return {name: [meaning] for names, meaning in re.findall(r"^\| (`.*?`) \| (.*) \|$", text, flags=re.M)
            for name in re.findall(r"`(\w+)`", names)}


class Entry:
    def __init__(self, symbol, header, formula, options):
        self.symbol = symbol
        self.start = header.start(header.nearest(symbol.line, symbol.name))
        text, end = header.statement(self.start, symbol.kind)
        indent = len(text) - len(text.lstrip())
        text = "\n".join(line[indent:] if not line[:indent].strip() else line for line in text.split("\n"))
        text = re.sub(r"\)\s*:\s[^{]*\{\}$", ");", text)  # of a constructor only how it is called
        self.text = re.sub(r"HALFTAPE_ARG\((.*), (\w+)\)", r"\1 \2", text).strip("\n")
        self.comment = header.own_comment(self.start, end)
        if m := re.search(r"<formula::(\w+)>", self.text):
            self.comment = self.comment or formula.get(m[1], [])
        if symbol.owner and "Options" in symbol.owner:
            self.comment = self.comment or options.get(symbol.name, [])
        if not self.says_itself():
            self.comment = self.comment or header.comment_of_block(self.start, symbol.owner)

    def says_itself(self):
        """A body of one statement says what it returns."""
        return re.search(r"\{ *(return )?[^;{}]*(\{[^{}]*\})?[^;{}]*;? *\};?$", self.text)

    def names(self):
        """The names under which a comment may stand: an overload's, that of another rank, that of the form in place."""
        name = re.sub(r"(?<=\D)[123]d", "", self.symbol.name)
        return {name, name.rstrip("_"), re.sub("^set_", "", name)}

    def explained(self, named):
        """Is there a comment, or one that speaks for this symbol too? `named`: the names that have one, by scope."""
        s = self.symbol
        own = s.scope.rpartition("::")[2]
        about = re.sub(r"(Func)?Options(Base)?$|Impl$", "", own)  # what a struct of options is about
        return bool(
            self.comment
            or self.names() & named[s.scope]
            or re.match(r"HALFTAPE_|FORWARD_HAS_", self.text)          # made by a macro: that has one
            or "ModuleHolder<" in self.text                            # the module that it holds has
            or self.says_itself()
            or s.kind == "typedef" and "=" in self.text                # an alias says what it stands for
            or s.kind == "enum" and "//" in self.text
            or self.text.startswith(("using ", "friend "))
            or re.search(r"= (default|delete);$", self.text)
            or s.owner and s.name in (own, f"~{own}", f"{own}Impl")    # constructors: the class has
            or s.name.startswith("operator")
            or s.owner and s.name in OF_EVERY_MODULE
            or re.search(r"\boverride\b", self.text)                   # the base has
            or own in ("Tensor", "TensorBase") and self.names() & named["halftape"]  # the function has
            or s.kind in ("class", "struct") and "Options" in s.name   # the class of the options has
            or s.kind == "variable" and s.name == "options"            # of the type that it has
            or re.search(r"constexpr .*= *([\w:]+::\w+|k\w+)", self.text)  # another name of an enumerator
            or s.owner and s.kind == "variable" and self.word_in(s.name.rstrip("_"), named["about", about] or ""))

    @staticmethod
    def word_in(word, text):
        return re.search(rf"\b{word}\b", text)


def entries(root):
    headers = public_headers(root)
    formula, options = formulas(root), common_options(root)
    pages = {}
    for name, found in symbols(root, headers).items():
        header = Header(root, name)
        # What Doxygen takes for a class in the text of a macro is none.
        pages[name] = header, [e for s in found if "##" not in (e := Entry(s, header, formula, options)).text]
    named = collections.defaultdict(set)
    about = collections.defaultdict(str)
    for header, page in pages.values():
        for e in page:
            if e.comment:
                named[e.symbol.scope] |= e.names()
                about[re.sub(r"(Func)?Options(Base)?$|Impl$", "", e.symbol.name)] += " ".join(e.comment) + " "
    for key, text in about.items():
        named["about", key] = text
    for _ in range(2):  # negative(x) returns neg(x)
        for _, page in pages.values():
            for e in page:
                if e.symbol.scope == "halftape" and e.explained(named):
                    named["halftape"] |= e.names()
    return pages, named


def check_comments(root):
    pages, named = entries(root)
    bare = [e for _, page in pages.values() for e in page if not e.explained(named)]
    for e in bare:
        print(f"{e.symbol.file}:{e.start + 1}: {e.symbol.scope}::{e.symbol.name} has no comment: {e.text.split(chr(10))[0].strip()}")
    total = sum(len(page) for _, page in pages.values())
    print(f"site: {len(pages)} public headers, {total} public symbols, {len(bare)} without a comment")
    return 1 if bare or total < 1000 else 0


def escaped(text):
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([\\\\*_<>\[\]|$#{}~])", r"\\\1", p) for p in parts)


def prose(lines):
    """A comment as Markdown: indented lines are code, all else is text."""
    blocks, code = [], False
    for line in lines + [""]:
        is_code = line.startswith("    ") or (code and not line.strip())
        if is_code != code:
            blocks.append("```cpp" if is_code else "```\n")
            code = is_code
        blocks.append(line[4:] if code else re.sub(r"^([-+])(\s)", r"\\\1\2", escaped(line)))
    if code:
        blocks.append("```\n")
    return "\n".join(blocks).strip() + "\n"


def header_page(name, header, page):
    """Headings for what stands in a namespace; below a class its members. Declarations with one comment share a block."""
    text = [f"---\norphan: true\n---\n# {name}\n", prose(header.purpose())]
    titles, shown, block, comment = set(), set(), [], []

    def flush():
        if block:
            text.append("```cpp\n" + "\n".join(block) + "\n```\n")
            if comment:
                text.append(prose(comment))
            block.clear()

    title = None
    for e in page:
        s = e.symbol
        if (e.start, e.text) in shown:  # several names in one declaration
            continue
        shown.add((e.start, e.text))
        before, title = title, (s.scope if s.owner else f"{s.scope}::{s.name}").removeprefix("halftape").removeprefix("::")
        if title != before or e.comment != comment:
            flush()
        if title != before and title not in titles:
            titles.add(title)
            text.append(f"## {escaped(title)}\n")
        comment = e.comment
        block.append(re.sub(r" \{.*\}$", ";", e.text) if e.comment and s.kind == "function" else e.text)
    flush()
    return "\n".join(text)


def write_pages(root, tree):
    """Writes the pages to tree/reference/; gives the names of those for the table of contents."""
    pages, named = entries(root)
    folder = tree / "reference"
    links = {}
    for name, (header, page) in pages.items():
        if not page:
            continue
        file = folder / (name[:-2] + ".md")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(header_page(name, header, page), encoding="utf-8")
        names = list(dict.fromkeys(e.symbol.name for e in page if not e.symbol.owner))
        links[name] = (" ".join(header.purpose()), names)
    listed = ["reference/index.md"]
    index = ["# Reference\n", "Every public class, function, struct of options and macro, from the comments of the headers; one include, "
             "`<halftape/halftape.h>`, has them all. [The rules](../docs/site/README.md) say what counts as public.\n"]
    for wing, title in WINGS.items():
        text = [f"# {wing}: {title}\n"]
        for name, (purpose, names) in links.items():
            if name.startswith(wing + "/"):
                text.append(f"## [{name}]({name[:-2]}.md)\n\n{escaped(purpose)}\n\n" + " ".join(f"`{n}`" for n in names) + "\n")
        (folder / f"{wing}.md").write_text("\n".join(text), encoding="utf-8")
        index.append(f"- [{wing}]({wing}.md): {title[0].lower() + title[1:] if title != 'CUDA' else title}")
        listed.append(f"reference/{wing}.md")
    (folder / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")
    return listed
