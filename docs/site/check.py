"""What every page of the built site must satisfy, without a browser."""
import html.parser
import pathlib
import urllib.parse

PAGE_LIMIT, LAB_LIMIT = 200_000, 1_000_000  # bytes


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.problems, self.headings = set(), [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if "id" in a:
            self.ids.add(a["id"])
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        elif tag == "a" and a.get("name"):
            self.ids.add(a["name"])
        for name in ("src", "srcset", "data", "poster"):
            if a.get(name):
                self.loads.append(a[name])
        if tag == "link" and a.get("rel") not in ("canonical", "author"):
            self.loads.append(a["href"])
        if tag == "img" and not a.get("alt"):
            self.problems.append(f"an image without alt: {a.get('src')}")
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append(int(tag[1]))


def check_site(root):
    """The list of faults: dead links and anchors, resources from elsewhere, images without alt, headings out of order, size."""
    root = pathlib.Path(root)
    files = {f: f.read_text(encoding="utf-8") for f in root.rglob("*.html")}
    pages = {f: Page(text) for f, text in files.items() if f.name != "lab.html"}
    problems = []
    for file, page in pages.items():
        name = file.relative_to(root)
        problems += [f"{name}: {p}" for p in page.problems]
        if file.stat().st_size > PAGE_LIMIT:
            problems.append(f"{name} has {file.stat().st_size} bytes, more than {PAGE_LIMIT}")
        if page.headings.count(1) != 1 and file.name not in ("search.html", "genindex.html"):
            problems.append(f"{name} has {page.headings.count(1)} titles")
        for before, after in zip(page.headings, page.headings[1:]):
            if after > before + 1:
                problems.append(f"{name}: a heading of level {after} after one of level {before}")
        for target in page.links + page.loads:
            url = urllib.parse.urlsplit(target)
            if url.scheme in ("http", "https") or url.netloc:
                if target in page.loads:
                    problems.append(f"{name} loads {target}")
                continue
            if url.scheme:
                if url.scheme not in ("mailto", "data"):
                    problems.append(f"{name}: {target}")
                continue
            goal = (file.parent / urllib.parse.unquote(url.path)).resolve() if url.path else file
            if goal.is_dir():
                goal = goal / "index.html"
            if not goal.exists():
                problems.append(f"{name} links to {target}, which does not exist")
            elif url.fragment and goal in pages and urllib.parse.unquote(url.fragment) not in pages[goal].ids:
                problems.append(f"{name} links to {target}, which is no anchor")
    for file in files:
        if file.name == "lab.html" and file.stat().st_size > LAB_LIMIT:
            problems.append(f"lab.html has {file.stat().st_size} bytes, more than {LAB_LIMIT}")
    for sheet in root.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        if "url(http" in text or "url(//" in text or "@import url(" in text:
            problems.append(f"{sheet.relative_to(root)} loads from elsewhere")
    return sorted(set(problems))
