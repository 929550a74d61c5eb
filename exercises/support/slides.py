"""The chapters as slides: one page of HTML, a slide a printed page, landscape."""
import html
import re

from grading import Trouble

STYLE = '''@page { size: 297mm 210mm; margin: 0 }
* { box-sizing: border-box }
html { color-scheme: light }
body { margin: 0; font: 20px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #ddd }
section { width: 297mm; height: 209.5mm; margin: 0 auto 6mm; padding: 14mm 18mm; background: #fff; display: flex; flex-direction: column;
          gap: 6mm; overflow: hidden; break-after: page; break-inside: avoid }
h1 { font-size: 34px; line-height: 1.2; margin: 0 }
figure { flex: 1 1 0; min-height: 0; margin: 0; display: flex; justify-content: center }
figure svg { width: 100%; height: 100% }
.tall { display: grid; grid: auto minmax(0, 1fr) / 70% 1fr }
.tall h1 { grid-column: 1 / 3 }
.tall ul { align-self: center }
ul { margin: 0; padding-left: 1.2em }
li { margin: 1.5mm 0 }
code { font: 0.9em ui-monospace, monospace }
@media print { body { background: #fff } section { margin: 0 } section:last-child { break-after: auto } }'''


def marked(text):
    """Markdown within a line: code, bold, emphasis, links."""
    text = html.escape(' '.join(text.split()), quote=False)
    text = re.sub(r'`([^`]+)`', r'<code>\1</code>', text)
    text = re.sub(r'\[([^\]]+)\]\([^)]*\)', r'\1', text)
    text = re.sub(r'\*\*([^*]+)\*\*', r'<b>\1</b>', text)
    return re.sub(r'(?<!\w)\*([^*]+)\*(?!\w)', r'<i>\1</i>', text)


def bullets(chapter, text):
    found = re.search(r'^## For teachers\s*$(.*?)(?=^## |\Z)', text, re.MULTILINE | re.DOTALL)
    if not found:
        raise Trouble(f'{chapter.name} has no part "## For teachers", from which its slide is made')
    return re.findall(r'^[-*] (.+(?:\n(?!\s*$|[-*] |#).+)*)', found.group(1), re.MULTILINE)


def inline(svg, number):
    """The picture for use within a page: its ids are its own there, and paper is light."""
    text = re.sub(r'<\?xml.*?\?>|<!DOCTYPE.*?>', '', svg, flags=re.DOTALL).strip()
    text = re.sub(r'@media\s*\(prefers-color-scheme:\s*dark\)\s*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}', '', text)
    for name in set(re.findall(r'\bid="([^"]+)"', text)):
        text = text.replace(f'id="{name}"', f'id="{name}{number}"').replace(f'#{name}"', f'#{name}{number}"')
        text = text.replace(f'url(#{name})', f'url(#{name}{number})')
    return re.sub(r'aria-labelledby="([^"]+)"', lambda found: 'aria-labelledby="' + ' '.join(
        f'{name}{number}' for name in found.group(1).split()) + '"', text)


def page(folder):
    """The HTML of all chapters in the folder, and their number."""
    chapters = sorted(folder.glob('[0-9][0-9]_*.md'))
    if not chapters:
        raise Trouble(f'{folder} holds no chapters')
    slides = []
    for i, chapter in enumerate(chapters):
        text = chapter.read_text()
        title = re.search(r'^# (.+)$', text, re.MULTILINE)
        picture = re.search(r'!\[[^\]]*\]\(([^)]+\.svg)\)', text)
        figure = kind = ''
        if picture and (file := chapter.parent / picture.group(1)).exists():
            svg = file.read_text()
            figure = f'<figure>{inline(svg, f"-{i}")}</figure>\n'
            if (box := re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)) and float(box.group(2)) > 0.65 * float(box.group(1)):
                kind = ' class="tall"'  # its lines stand beside it
        lines = ''.join(f'<li>{marked(each)}</li>\n' for each in bullets(chapter, text))
        heading = marked(title.group(1) if title else chapter.stem)
        slides.append(f'<section{kind}>\n<h1>{heading}</h1>\n{figure}<ul>\n{lines}</ul>\n</section>')
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>Mixed precision, by experiment</title>\n'
            f'<style>\n{STYLE}\n</style>\n</head>\n<body>\n' + '\n'.join(slides) + '\n</body>\n</html>\n'), len(chapters)
