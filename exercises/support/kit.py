"""Writes the students' kit: the exercises without solutions and without history, and the course's text."""
import hashlib
import json
import shutil
from pathlib import Path

from grading import Trouble, WrongArgument

README = '''# The exercises of the course

You need a C++20 compiler, CMake, Python 3 and doctest (Debian: `apt-get install g++ cmake ninja-build python3 doctest-dev
libeigen3-dev zlib1g-dev`), and an installed halftape: in the folder `halftape` beside this file, or anywhere, with
`export halftape_ROOT=/that/folder`. Then

    scripts/course

shows the first exercise and how to go on. Edit the `start.h` of an exercise and nothing else: only that is graded.
{chapters}'''


def fingerprint(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write(root, folder, exercises, seed):
    """Gives the number of files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WrongArgument(f'{folder} is there already and not empty: name a new folder')
    if folder.resolve().is_relative_to((root / 'exercises').resolve()):
        raise WrongArgument(f'{folder} lies inside the exercises: name a folder elsewhere')
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = folder / 'exercises'
        (own / 'support').mkdir(parents=True)
        for each in [root / 'exercises/CMakeLists.txt'] + sorted((root / 'exercises/support').glob('*.*')):
            shutil.copyfile(each, own / each.relative_to(root / 'exercises'))
        tests = {}
        for exercise in exercises:
            (own / exercise.name).mkdir()
            for each in sorted(exercise.folder.iterdir()):
                if each.is_file() and each.suffix in ('.md', '.h', '.cpp'):
                    shutil.copyfile(each, own / exercise.name / each.name)
            tests[exercise.name] = fingerprint(exercise.test)
        (folder / 'scripts').mkdir()
        shutil.copy(root / 'scripts/course', folder / 'scripts/course')  # with its mode
        if (chapters := root / 'docs/course').is_dir():
            shutil.copytree(chapters, folder / 'docs/course')
        text = 'The chapters are in `docs/course`.\n' if chapters.is_dir() else ''
        if (root / 'LICENSE').exists():
            shutil.copyfile(root / 'LICENSE', folder / 'LICENSE')
        (folder / 'README.md').write_text(README.format(chapters=text))
        (folder / 'kit.json').write_text(json.dumps({'seed': seed, 'tests': tests}, indent=1) + '\n')
    except OSError as error:
        raise Trouble(f'{error.filename or folder} cannot be written: {error.strerror}') from error
    return sum(each.is_file() for each in Path(folder).rglob('*'))


def changed(root, exercise):
    """Is this exercise's test.cpp another one than when the kit was written?"""
    tests = json.loads((root / 'kit.json').read_text())['tests']
    return tests.get(exercise.name) != fingerprint(exercise.test)
