#!/usr/bin/env python3
"""Are the exercises sound? tests/exercises/grading_test.py BUILD_FOLDER starters|solutions|attacks|kit

starters:  each start.h compiles, ends, and passes no case
solutions: each solution passes all cases, and with a mistake of exercises/solutions/mistakes.txt at least one less
attacks:   what ends, hangs or betrays the grading scores nothing, and is said plainly
kit:       what students get holds no solution; slides have a figure and three lines; wrong arguments are refused
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / 'exercises/support'))
import grading  # noqa: E402
import kit  # noqa: E402

failures = 0


def expect(holds, what):
    global failures
    if not holds:
        failures += 1
        print(f'NOT SO: {what}', flush=True)


def described(result):
    return f'{result.points} of {result.most} points; {result.error}' + ''.join(
        f'\n    {status} {name}: {message}' for name, status, message in result.cases if status != 'pass')


def checked(builder, exercise, text, seconds=grading.SECONDS):
    """The result of a start.h with this text."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / 'start.h'
        start.write_text(text)
        return grading.check(builder, exercise, start, seconds=seconds)


def starters(builder, exercises):
    for exercise in exercises:
        result = grading.check(builder, exercise)
        print(f'{exercise.name}: {result.points} of {result.most}', flush=True)
        expect(not result.error and result.points == 0 and all(status == 'fail' for _, status, _ in result.cases),
               f'{exercise.name}/start.h compiles and fails in every case: {described(result)}')
        expect(not result.output, f'{exercise.name}/start.h compiles without a warning: {result.output}')
        hints = exercise.hints()
        expect(2 <= len(hints) <= 4 and all(hints), f'{exercise.name}/hints.md has two to four hints')
        expect(exercise.minutes() and exercise.chapter() and (ROOT / exercise.chapter()).exists(),
               f'{exercise.name}/README.md says how long, and links to its chapter')
        expect(len(set(exercise.cases)) == len(exercise.cases), f'the names of cases of {exercise.name} differ')


def mistakes():
    """(exercise, text, replacement)."""
    for line in (ROOT / 'exercises/solutions/mistakes.txt').read_text().splitlines():
        if line and not line.startswith('#'):
            yield [part.strip() for part in f'{line} '.split(' | ')]  # a replacement may be empty


def solutions(builder, exercises):
    for exercise in exercises:
        solution = ROOT / f'exercises/solutions/{exercise.name}.h'
        result = grading.check(builder, exercise, solution)
        print(f'{exercise.name}: {result.points} of {result.most}', flush=True)
        expect(result.passed, f'the solution of {exercise.name} passes: {described(result)}')
        expect(not result.output, f'the solution of {exercise.name} says nothing: {result.output}')
        planted = 0
        for name, text, replacement in mistakes():
            if name != exercise.name:
                continue
            planted += 1
            right = solution.read_text()
            expect(right.count(text) == 1, f'{name}: "{text}" stands in the solution once')
            wrong = checked(builder, exercise, right.replace(text, replacement))
            expect(not wrong.error and wrong.points < wrong.most,
                   f'{name}: "{replacement}" for "{text}" loses a case: {described(wrong)}')
        expect(planted, f'{exercise.name} has a mistake in exercises/solutions/mistakes.txt')


def attacks(builder, exercises):
    first = exercises[0]
    right = (ROOT / f'exercises/solutions/{first.name}.h').read_text()
    signature = '#pragma once\n#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n{}\ninline uint16_t half_of(float) {{ {} }}\n'
    for what, text, said in [
            ('an empty file', '', 'does not compile'),
            ('a syntax error', right.replace('return', 'retrun'), 'does not compile'),
            ('a missing }', right.rstrip().removesuffix('}'), 'start.h ends in the middle of something'),
            ('an include of doctest', '#include <doctest/doctest.h>\n' + right, 'may not contain'),
            ('a CHECK of its own', right + '\n#define CHECK(x)\n', 'may not contain'),
            ('exit(0)', signature.format('', 'std::exit(0);'), 'exit code 0'),
            ('exit(0) before main', signature.format('inline int early = (std::exit(0), 0);', 'return early;'), 'exit code 0'),
            ('a printed success', signature.format('', 'std::puts("[doctest] Status: SUCCESS!"); std::_Exit(0);'), 'exit code 0'),
            ('a segmentation fault', signature.format('', 'return *reinterpret_cast<volatile uint16_t*>(8);'), 'SIGSEGV'),
            ('a solution', f'#include <solutions/{first.name}.h>\n', 'includes a solution'),
            ('a solution by another way', f'#include <support/../solutions/{first.name}.h>\n', 'includes a solution'),
            ('disabled cases', '#define DOCTEST_CONFIG_DISABLE\n' + right, 'may not contain'),
            ('a flood', signature.format('', 'for (;;) std::puts("flood");'), 'wrote more than'),
    ]:
        result = checked(builder, first, text)
        expect(result.points == 0 and said in result.error + str(result.cases),
               f'{what} scores nothing and is said: {described(result)}')
        print(f'{what}: {result.points} of {result.most}', flush=True)
    chatter = checked(builder, first, signature.format('', 'for (int i = 0; i < 9; ++i) std::puts("line");\n return 0;'))
    expect(chatter.output.startswith('line\n' * 20 + '… and ') and chatter.output.endswith(' more lines'),
           f'20 lines of what a program prints are shown: {chatter.output}')
    endless = checked(builder, first, signature.format('', 'for (;;) std::getchar();'), seconds=2)
    expect(endless.points == 0 and 'more than 2 s' in str(endless.cases), f'an endless loop is stopped: {described(endless)}')
    # A case that crashes does not take the others' points.
    crash = checked(builder, first, right.replace('if (std::isnan(value))', 'if (std::isnan(value)) std::abort(); else if (value != value)'))
    expect(crash.points == len(first.cases) - 1 and 'SIGABRT' in str(crash.cases), f'one crash costs one case: {described(crash)}')
    for place in Path('/nowhere/start.h'), Path('/dev/zero'), ROOT:
        expect(grading.check(builder, first, place).error, f'{place} is no start.h')
    expect(list(grading.check(builder, first, ROOT / f'exercises/solutions/{first.name}.h').to_json()) ==
           ['version', 'status', 'message', 'tests', 'exercise', 'points', 'of'], "the JSON has the runner format's names")


def course(*arguments):
    """(exit code, what was said) of scripts/course."""
    done = subprocess.run([sys.executable, str(ROOT / 'scripts/course'), '--build', sys.argv[1], *map(str, arguments)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def kit_and_words(builder, exercises):
    first = exercises[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / 'a kit'
        kit.write(ROOT, folder, exercises, 7)
        names = {str(each.relative_to(folder)) for each in folder.rglob('*')}
        expect(not [each for each in names if 'solution' in each or '.git' in each], f'no solution is in the kit: {names}')
        expect({f'exercises/{each.name}/start.h' for each in exercises} | {'scripts/course', 'kit.json'} <= names,
               f'all exercises are in the kit: {names}')
        solutions_ = [each.read_text() for each in (ROOT / 'exercises/solutions').glob('*.h')]
        texts = [each.read_text() for each in folder.rglob('start.h')]
        expect(len(texts) == len(exercises) and not set(texts) & set(solutions_), 'the start.h of the kit are no solutions')
        try:
            kit.write(ROOT, folder, exercises, 7)
            expect(False, 'a folder that is not empty is refused')
        except grading.WrongArgument as refusal:
            expect('not empty' in str(refusal), 'it is said why')
        # A kit knows its class and its tests.
        moved = Path(scratch) / 'moved'
        folder.rename(moved)
        (moved / f'exercises/{exercises[0].name}/test.cpp').write_text('// mine\n')
        for exercise, wanted in (exercises[0], True), (exercises[1], False):
            own = grading.Exercise(moved / f'exercises/{exercise.name}')
            expect(kit.changed(moved, own) == wanted, f'a changed test.cpp is noticed: {exercise.name}')
        # Submissions.
        start = Path(scratch) / f'class/ann/{exercises[1].name}'
        start.mkdir(parents=True)
        shutil.copyfile(ROOT / f'exercises/solutions/{exercises[1].name}.h', start / 'start.h')
        odd = Path(os.fsdecode(os.fsencode(scratch) + b'/class/b\xe9b')) / exercises[1].name
        (odd / 'test.cpp').mkdir(parents=True)
        shutil.copyfile(start / 'start.h', odd / 'start.h')
        code, said = course('--grade', '--from', Path(scratch) / 'class', '--json', Path(scratch) / 'grades.json')
        grades = json.loads((Path(scratch) / 'grades.json').read_text())
        expect(code == 0 and grades['ann']['points'] == len(exercises[1].cases) and
               grades['ann']['of'] == sum(len(each.cases) for each in exercises) == len(grades['ann']['tests']),
               f'a submission gets its points: {said}')
        expect(grades['b\udce9b']['points'] == grades['ann']['points'] and 'its test.cpp was changed' in said,
               f'an odd one gets its points, too: {said}')
        if list((ROOT / 'docs/course').glob('[0-9][0-9]_*.md')):
            code, said = course('--slides', Path(scratch) / 'slides.html')
            text = (Path(scratch) / 'slides.html').read_text()
            expect(code == 0 and text.count('</section>') == text.count('</svg>') and
                   text.count('<li>') == 3 * text.count('</section>'), f'a slide has a figure and three lines: {said}')
    for arguments in (['check', '99'], ['chekc'], ['--seed', 'x'], ['--json', 'x'], ['--grade', '--kit', 'x'], ['list', '1'],
                      ['--grade', '--from', '/nowhere'], ['--kit', ROOT / 'exercises/kit']):
        code, said = course(*arguments)
        expect(code == 2 and said and 'Traceback' not in said, f'{arguments} is refused, with exit code 2: {code}, {said}')
    for arguments, wanted in ((['wat'], 'course: there is no command "wat"; try check, hint, watch, list, or --help'),
                              (['check', '1', '2'], 'course: one exercise at a time'),
                              (['check', '--seed', '3', '1', '2'], 'course: one exercise at a time')):
        expect(course(*arguments) == (2, wanted + '\n'), f'{arguments} is refused in one sentence: {course(*arguments)}')
    for word in ('--help', 'help'):
        code, said = course(word)
        expect(code == 0 and '--kit FOLDER' in said, f'{word} helps')
    for word in first.name, first.folder, first.start:
        code, said = course('check', word)
        expect(code == 1 and f'{first.name}: 0 of' in said, f'{word} is the first exercise: {said}')


def main():
    parts = {'starters': starters, 'solutions': solutions, 'attacks': attacks, 'kit': kit_and_words}
    if len(sys.argv) != 3 or sys.argv[2] not in parts:
        print(__doc__)
        sys.exit(0 if sys.argv[1:] in (['-h'], ['--help']) else 2)
    os.environ.pop('HALFTAPE_COURSE_SEED', None)
    builder = grading.Builder(ROOT, Path(sys.argv[1])).prepare()
    exercises = grading.exercises_in(ROOT / 'exercises')
    parts[sys.argv[2]](builder, exercises)
    sys.exit(failures > 0)


main()
