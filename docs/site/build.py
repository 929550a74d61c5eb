"""Builds the site: see scripts/site, which installs what this needs, and README.md beside this file."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

import check
import reference

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GUIDES = ["mixed_precision", "lab", "web", "numerics", "accuracy", "reliability", "ops", "data", "files", "training", "cuda", "distributed",
          "libtorch", "platforms", "architecture", "glossary"]
# What the chapters ask the reader to choose in the page that trains, as its address takes it (docs/web.md).
LAB_SETTINGS = {"02": "precision=fp16&weight=1", "03": "precision=fp16&weight=1e-4", "05": "law=fixed&scale=4", "11": "precision=bf16"}
LINK = re.compile(r"(?<!\\)\]\(([^()\s]+)\)")
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".cu": "cpp", ".cuh": "cpp", ".inc": "cpp", ".py": "python", ".sh": "bash", ".cmake": "cmake",
             ".js": "javascript", ".html": "html", ".css": "css", ".json": "json"}


def outside_code(text, change):
    """`text` with change() applied to the lines outside of fences, but not to `code` in them."""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r" *(`{3,}|~{3,})", line)
        if fence is None and mark:
            fence = mark[1]
        elif fence is not None:
            if line.strip().startswith(fence) and set(line.strip()) == {fence[0]}:
                fence = None
        else:
            parts = re.split(r"(`[^`]*`)", line)
            # A link may hold code, [`a`](b): its target lies in the part behind the code.
            line = "".join(p if p.startswith("`") else change(p) for p in parts)
        lines.append(line)
    return "\n".join(lines)


class Site:
    """The pages, copied to a tree of the repository's shape, so that links between them stay as they are."""

    def __init__(self, tree, has_lab):
        self.tree, self.has_lab = tree, has_lab
        self.pages, self.sources, self.extra, self.problems = [], [], set(), []

    def write(self, name, text):
        file = self.tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def add(self, page):
        """A Markdown page and, in turn, all that it links to."""
        waiting = [page]
        while waiting:
            page = waiting.pop()
            if page in self.pages:
                continue
            self.pages.append(page)
            folder = pathlib.PurePosixPath(page).parent
            text = (ROOT / page).read_text(encoding="utf-8")

            def link(match):
                target = match[1]
                if re.match(r"[a-z]+:|#", target):
                    return match[0]
                path, _, anchor = target.partition("#")
                path = os.path.normpath(folder / urllib.parse.unquote(path))
                if not (ROOT / path).exists():
                    self.problems.append(f"{page} links to {path}, which does not exist")
                    return "]"
                if (ROOT / path).is_dir():
                    if (ROOT / path / "README.md").exists():
                        path += "/README.md"
                    else:
                        return f"]({os.path.relpath(self.folder_page(path), folder)})"
                if path.endswith(".md"):
                    waiting.append(path)
                    return f"]({os.path.relpath(path, folder)}{'#' + anchor if anchor else ''})"
                if re.search(r"\.(svg|png|webp|csv)$", path):
                    self.copy(path)
                    return match[0] if not path.endswith(".csv") else f"]({self.download(path, folder)})"
                return f"]({os.path.relpath(self.source_page(path), folder)})"

            text = outside_code(text, lambda part: LINK.sub(link, part))
            for attribute in re.findall(r'<(?:img|source)[^>]* (?:src|srcset)="([^":]+)"', text):
                self.extra.add(os.path.normpath(folder / attribute))  # Sphinx does not see these
            self.write(page, self.with_lab(page, text))

    def copy(self, path):
        (self.tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, self.tree / path)

    def download(self, path, folder):
        self.extra.add(path)
        return f"{os.path.relpath(path, folder)}"

    def with_lab(self, page, text):
        """In a chapter, a link to the guide of the page that trains leads to the page itself, with the settings of the chapter; and
        the paragraph that begins with such a link has the page below it, loaded when it is opened."""
        chapter = re.match(r"docs/course/(\d\d|README)", page)
        if not chapter or not self.has_lab:
            return text
        address = "../../lab.html#" + LAB_SETTINGS.get(chapter[1], "").replace("&", "&amp;")
        frame = (f'\n<details><summary>Open it here</summary>\n\n<iframe class="lab" src="{address}" '
                 'title="The page that trains" loading="lazy"></iframe>\n\n</details>\n')
        text = re.sub(r"^(In \[[^\]]+\]\(\.\./web\.md\)(?:.+\n)+)", lambda m: m[1] + frame, text, count=1, flags=re.M)
        return re.sub(r"\[([^\]]+)\]\(\.\./web\.md\)", rf'<a href="{address}">\1</a>', text)

    def source_page(self, path):
        page = f"source/{path}.md"
        if page not in self.sources:
            self.sources.append(page)
            text = (ROOT / path).read_text(encoding="utf-8")
            kind = "cmake" if path.endswith("CMakeLists.txt") else LANGUAGES.get(pathlib.PurePosixPath(path).suffix, "text")
            if text.startswith("#!"):
                kind = "python" if "python" in text.split("\n")[0] else "bash"
            if len(text) > 25000:  # colours make it six times as large
                kind = "text"
            self.write(page, f"---\norphan: true\n---\n# {path}\n\n``````{kind}\n{text.rstrip()}\n``````\n")
        return page

    def folder_page(self, path):
        page = f"source/{path}.md"
        if page not in self.sources:
            self.sources.append(page)
            names = sorted(p.name + "/" * p.is_dir() for p in (ROOT / path).iterdir() if not p.name.startswith((".", "__")))
            self.write(page, f"---\norphan: true\n---\n# {path}/\n\n" + "".join(f"- `{n}`\n" for n in names))
        return page


def mini_page():
    """mini.cpp as a page: its rulers are headings, and the comments below them prose."""
    source = (ROOT / "samples/mini/mini.cpp").read_text(encoding="utf-8")
    parts = re.split(r"^// (\d+)\. (.*?) -+\n", source, flags=re.M)
    text = ["# The whole idea in one file\n", f"`samples/mini/mini.cpp`, {source.count(chr(10))} lines, all of them below.\n",
            f"```cpp\n{parts[0].strip()}\n```\n"]
    for number, title, body in zip(parts[1::3], parts[2::3], parts[3::3]):
        prose = re.match(r"((?:// .*\n)*)", body)[1] if re.match(r"(?:// .*\n)+\n", body) else ""
        code = body[len(prose):].strip()
        words = prose.replace("// ", "").replace("\n", " ").strip()
        text.append(f"## {number}. {title}\n\n{words}\n\n```cpp\n{code}\n```\n")
    return "\n".join(text)


def toctree(caption, entries):
    return f"```{{toctree}}\n:caption: {caption}\n:hidden:\n\n" + "\n".join(entries) + "\n```\n\n"


def write_tree(tree, lab):
    site = Site(tree, lab is not None)
    chapters = sorted(p.name for p in (ROOT / "docs/course").glob("[0-9][0-9]_*.md"))
    for page in ["README.md", "docs/tour.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/site/README.md", "docs/course/README.md"]:
        site.add(page)
    for name in GUIDES + [f"course/{c[:-3]}" for c in chapters]:
        site.add(f"docs/{name}.md")
    site.write("mini.md", mini_page())
    if lab:
        shutil.copyfile(lab, tree / "lab.html")
        site.extra.add("lab.html")
        site.write("train.md", "# The page that trains\n\nThe library itself, compiled to WebAssembly, trains here: see [how](docs/web.md). "
                   "Its address holds the settings; <a href=\"lab.html\">open it alone</a> to pass them on.\n\n"
                   '<iframe class="lab" src="lab.html" title="The page that trains" loading="lazy"></iframe>\n')
    references = reference.write_pages(ROOT, tree)
    listed = {"README.md", "docs/tour.md", "mini.md", "docs/course/README.md", "docs/site/README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    listed |= {f"docs/{g}.md" for g in GUIDES} | {f"docs/course/{c}" for c in chapters}
    for page in site.pages:
        if page not in listed:
            text = (tree / page).read_text(encoding="utf-8")
            site.write(page, "---\norphan: true\n---\n" + text)
    index = (HERE / "index.md").read_text(encoding="utf-8")
    index = index.replace("TRAIN", "[train in this browser](train.md)" if lab else "`scripts/web_lab` makes a page that trains in the browser")
    index += toctree("Begin", ["README", "mini", "docs/tour"] + ["train"] * bool(lab))
    index += toctree("The course", ["docs/course/README"] + [f"docs/course/{c[:-3]}" for c in chapters])
    index += toctree("Guides", [f"docs/{g}" for g in GUIDES])
    index += toctree("Reference", [r[:-3] for r in references])
    index += toctree("The project", ["CONTRIBUTING", "CHANGELOG", "docs/site/README"])
    site.write("index.md", index)
    site.copy("docs/report.png")
    shutil.copyfile(HERE / "conf.py", tree / "conf.py")
    (tree / "_static").mkdir()
    shutil.copyfile(HERE / "site.css", tree / "_static" / "site.css")
    return site


def settle_theme(html):
    """Debian's Furo expects a web server: it imports a style sheet by an absolute path, and a script as a module. And its colours
    for the dark do not come by themselves."""
    style, script = html / "_static/styles/furo.css", html / "_static/scripts/furo.js"
    text = style.read_text(encoding="utf-8")
    for path in re.findall(r"@import url\((/javascript/[^)]+)\);", text):
        text = text.replace(f"@import url({path});", pathlib.Path("/usr/share" + path).read_text(encoding="utf-8"))
    dark = re.search(r'  body\[data-theme="dark"\] (\{.*?\})', text, flags=re.S)
    if dark and "prefers-color-scheme" not in text:
        text += '@media screen and (prefers-color-scheme: dark) { body:not([data-theme="light"]) ' + dark[1] + " }\n"
    style.write_text(text, encoding="utf-8")
    text = script.read_text(encoding="utf-8")
    for line, path in re.findall(r'^(import \w+ from "\./([^"]+)";)$', text, flags=re.M):
        text = (script.parent / path).read_text(encoding="utf-8") + text.replace(line, "")
    script.write_text(text, encoding="utf-8")


def replace(new, out):
    """Puts the finished site into the place of an old one, at once."""
    out.parent.mkdir(parents=True, exist_ok=True)
    ready, old = (out.with_name(f".{out.name}.{word}.{os.getpid()}") for word in ("new", "old"))
    shutil.move(new, ready)
    if out.exists():
        out.rename(old)
    ready.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(prog="site", usage="scripts/site [--out DIR] [--lab FILE] [--check | --test [--pictures DIR]]")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build/site")
    p.add_argument("--lab", type=pathlib.Path)
    p.add_argument("--check", action="store_true")
    p.add_argument("--test", action="store_true")
    p.add_argument("--pictures", type=pathlib.Path)
    a = p.parse_args()
    a.out = a.out.resolve()
    if a.check:
        return reference.check_comments(ROOT)
    if a.pictures and not a.test:
        p.error("--pictures needs --test")
    if a.out.exists() and not (a.out.is_dir() and ((a.out / "searchindex.js").exists() or not any(a.out.iterdir()))):
        p.error(f"--out: {a.out} is not a folder, or holds something that is not a site")
    lab = a.lab or ROOT / "build/web/lab.html"
    if a.lab and not a.lab.is_file():
        p.error(f"--lab: there is no file {a.lab}")
    with tempfile.TemporaryDirectory(prefix="halftape_site_") as work:
        tree, html = pathlib.Path(work, "tree"), pathlib.Path(work, "html")
        tree.mkdir()
        site = write_tree(tree, lab if lab.is_file() else None)
        command = ["/usr/bin/sphinx-build", "-q", "-W", "--keep-going", "-b", "html", "-d", f"{work}/trees", str(tree), str(html)]
        if subprocess.run(command).returncode:
            sys.exit("site: Sphinx refused a page; the lines above name it, in a copy of the repository's pages")
        settle_theme(html)
        for name in site.extra:
            (html / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / name if (tree / name).exists() else ROOT / name, html / name)
        shutil.rmtree(html / ".doctrees", ignore_errors=True)
        problems = site.problems + check.check_site(html)
        replace(html, a.out)
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    print(f"site: {len(list(a.out.rglob('*.html')))} pages in {a.out}/index.html")
    if a.test:
        import test_pages
        return test_pages.run(a.out, a.pictures) or bool(problems)
    return bool(problems)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"site: {error}")
