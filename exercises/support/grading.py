"""Builds and runs one exercise, and says what each case found."""
import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 20                  # for the cases of one exercise together
MOST_OUTPUT = 10 << 20        # bytes that a program may write
MOST_MEMORY = 4 << 30         # bytes that a program may ask for
MOST_TEXT = 256 << 10         # bytes of a start.h

# start.h may not change what a case means.
TOUCHES_DOCTEST = re.compile(
    r'^\s*#\s*(?:include\s*[<"]doctest|'
    r'(?:define|undef)\s+(?:DOCTEST|CHECK|REQUIRE|WARN|TEST_CASE|SUBCASE|INFO|CAPTURE|FAIL|MESSAGE))',
    re.MULTILINE)
CASE = re.compile(r'^TEST_CASE\(((?:\s*"(?:[^"\\]|\\.)*")+)\)', re.MULTILINE)


class Trouble(Exception):
    """Something that is not the student's fault, in one sentence."""
    code = 1


class WrongArgument(Trouble):
    code = 2


class Exercise:
    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.number = int(folder.name[:2])
        self.start = folder / 'start.h'
        self.test = folder / 'test.cpp'
        text = self.test.read_text()
        self.cases = [''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', found)).replace('\\"', '"')
                      for found in CASE.findall(text)]

    def readme(self):
        return (self.folder / 'README.md').read_text()

    def title(self):
        return self.readme().splitlines()[0].lstrip('# ')

    def minutes(self):
        found = re.search(r'[Aa]bout (\d+) minutes', self.readme())
        return int(found.group(1)) if found else None

    def chapter(self):
        """The path of the chapter from the root, as the README links it."""
        found = re.search(r'\]\(\.\./\.\./(docs/course/[^)]+\.md)\)', self.readme())
        return found.group(1) if found else None

    def hints(self):
        """The steps of hints.md, each begun by a line "## …"."""
        parts = re.split(r'^## .*\n', (self.folder / 'hints.md').read_text(), flags=re.MULTILINE)
        return [part.strip() for part in parts[1:]]


def exercises_in(folder):
    return [Exercise(each) for each in sorted(folder.glob('[0-9][0-9]_*')) if (each / 'test.cpp').exists()]


class Result:
    """cases: (name, 'pass' | 'fail' | 'error', message). error: why nothing could be run."""

    def __init__(self, exercise, cases=None, error='', output='', seconds=0.0):
        self.exercise = exercise
        self.error = error
        self.output = output
        self.seconds = seconds
        self.cases = cases or [(name, 'error', '') for name in exercise.cases]

    @property
    def points(self):
        return sum(status == 'pass' for _, status, _ in self.cases)

    @property
    def most(self):
        return len(self.cases)

    @property
    def passed(self):
        return self.points == self.most > 0

    def all_tests(self):
        """Every case, also of what does not compile."""
        return [{'name': name, 'status': status, 'message': message or self.error or None, 'output': None}
                for name, status, message in self.cases]

    def to_json(self):
        """Exercism's format for test runners, version 2, and the points."""
        return {'version': 2, 'status': 'error' if self.error else 'pass' if self.passed else 'fail',
                'message': self.error or None, 'tests': [] if self.error else self.all_tests(),
                'exercise': self.exercise.name, 'points': self.points, 'of': self.most}


class Builder:
    """What is compiled once: the library and doctest's main. `build` is a build folder of CMake."""

    def __init__(self, root, build=None):
        self.root = root
        self.kit = (root / 'kit.json').exists()
        self.build = Path(build).absolute() if build else root / ('build' if self.kit else 'build/demo')
        self.given = bool(build)
        self.commands = None
        self.prefix = []  # options that give every check what is compiled once

    def file(self):
        return self.build / ('compile.json' if self.kit else 'exercises/compile.json')

    def prepare(self, setup=True):
        """Configures and builds what is missing or old. A folder that was given is taken as it is built."""
        if self.commands:
            return self
        if self.given and self.file().exists():
            return self.read()
        if setup and not self.kit:
            packages = 'g++ cmake ninja-build libeigen3-dev libfmt-dev libcli11-dev zlib1g-dev doctest-dev'
            self.run([str(self.root / 'scripts/setup')] + packages.split(), 'packages are missing')
        if not shutil.which('cmake'):
            raise Trouble('cmake was not found: install it (Debian: apt-get install cmake g++ ninja-build doctest-dev)')
        try:
            self.build.mkdir(parents=True, exist_ok=True)
            lock = open(self.build / 'build.lock', 'w')
        except OSError as error:
            if self.is_built():
                return self.read()
            raise Trouble(f'{self.build} cannot be written ({error.strerror}): name another folder, as in '
                          'HALFTAPE_COURSE_BUILD=/tmp/course scripts/course') from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two at once build once
            if self.was_moved():
                if not self.kit:
                    raise Trouble(f'{self.build} was made in another place, for this folder was moved: delete it and try again')
                for each in ('CMakeCache.txt', 'CMakeFiles', 'compile.json'):
                    remove = shutil.rmtree if (self.build / each).is_dir() else os.remove
                    with contextlib.suppress(FileNotFoundError):
                        remove(self.build / each)
            if not self.file().exists():
                self.configure()
            first = not self.is_built()
            if first and not self.kit:
                print('course: the library is built first, once; some seven minutes on two busy cores', flush=True)
            targets = ['exercises_support'] if self.kit else ['halftape', 'exercises_support']
            self.run(['cmake', '--build', str(self.build), '--target'] + targets, 'the build failed', shown=first)
        return self.read()

    def was_moved(self):
        """CMake's build folders stay where they were made."""
        with contextlib.suppress(OSError):
            text = (self.build / 'CMakeCache.txt').read_text(errors='replace')
            made = re.search(r'^CMAKE_CACHEFILE_DIR:INTERNAL=(.*)$', text, re.MULTILINE)
            return made is not None and Path(made.group(1)).resolve() != self.build.resolve()
        return False

    def configure(self):
        if self.kit:
            generator = ['-G', 'Ninja'] if shutil.which('ninja') else []
            places = [place for place in (self.root / 'halftape',) if place.exists()]
            command = ['cmake', '-S', str(self.root / 'exercises'), '-B', str(self.build)] + generator
            command += [f'-DCMAKE_PREFIX_PATH={place}' for place in places]
            self.run(command, 'cmake did not find what the exercises need; where halftape is installed elsewhere, '
                     'set halftape_ROOT=/that/folder')
        else:
            self.run(['cmake', '--preset', 'demo', '-B', str(self.build), '-DHALFTAPE_BUILD_EXERCISES=ON'],
                     'configuring failed')

    def is_built(self):
        with contextlib.suppress(OSError, ValueError):
            self.commands = json.loads(self.file().read_text())
            return self.missing() is None
        return False

    def run(self, command, what, shown=False):
        kept = None if shown else subprocess.PIPE
        done = subprocess.run(command, cwd=self.root, stdout=kept, stderr=None if shown else subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Trouble(f'{what}{":" if done.stdout else ""}\n{done.stdout or ""}'.rstrip())

    def read(self):
        try:
            self.commands = json.loads(self.file().read_text())
        except (OSError, ValueError) as error:
            raise Trouble(f'{self.file()} cannot be read; delete {self.build} and try again') from error
        compiler = self.commands['compiler']
        if not shutil.which(compiler):
            raise Trouble(f'the compiler {compiler} is gone: install it, or delete {self.build} to look for another one')
        if missing := self.missing():
            raise Trouble(f'{missing} is missing: build it, or delete {self.build}')
        self.precompile()
        return self

    def precompile(self):
        """Compiles the standard library's headers once, under a name that changes with the compiler and its options."""
        header, compiler = self.root / 'exercises/support/std.h', self.commands['compiler']
        flags = self.compile_flags()
        what = [header.read_text(), *flags, compiler, str(os.stat(shutil.which(compiler)).st_mtime_ns)]
        copy = self.file().parent / f'std-{hashlib.sha256(chr(0).join(what).encode()).hexdigest()[:16]}.h'
        compiled, own = Path(f'{copy}.gch'), Path(f'{copy}.{os.getpid()}')
        with contextlib.suppress(OSError):  # in a folder that cannot be written checks take longer
            if not compiled.exists():
                copy.write_text(header.read_text())
                done = subprocess.run([compiler, *flags, '-x', 'c++-header', str(copy), '-o', str(own)], capture_output=True)
                if done.returncode == 0:
                    own.replace(compiled)
        self.prefix = ['-include', str(copy)] if compiled.exists() else []

    def missing(self):
        return next((each for each in self.commands['libraries'] if each.startswith('/') and not Path(each).exists()), None)

    def compile_flags(self):
        c = self.commands
        flags = ['-std=c++20', '-O1', '-Wall', '-Wextra', '-Wno-unused-parameter'] + [f for f in c['flags'] if f]
        flags += ['-I' + each for each in c['include'].split('|') if each]
        flags += [f'-I{self.root / "exercises"}']
        for each in c['system_include'].split('|'):
            if each and each != '/usr/include':  # naming it would reorder the compiler's own folders
                flags += ['-isystem', each]
        return flags

    def key(self, exercise, start, seed):
        """Changes with everything that a result depends on."""
        parts = [json.dumps(self.commands), str(seed)]
        for each in [start, *sorted(exercise.folder.iterdir()), *sorted((self.root / 'exercises/support').iterdir())]:
            if each.suffix in ('.h', '.cpp'):
                parts.append(each.read_text(errors='replace') if each.is_file() else '')
        parts += [str(os.stat(each).st_mtime_ns) for each in self.commands['libraries'] if each.startswith('/')]
        return hashlib.sha256('\0'.join(parts).encode()).hexdigest()


def ended_by(code):
    if code >= 0:
        return f'the program ended by itself, with exit code {code}, before this case was over'
    number = -code
    if number == signal.SIGXFSZ:
        return f'the program was stopped: it wrote more than {MOST_OUTPUT >> 20} MB'
    words = {signal.SIGSEGV: 'it used memory that is not its own', signal.SIGABRT: 'it was aborted',
             signal.SIGFPE: 'it divided by zero'}
    return f'the program crashed ({signal.Signals(number).name}{": " + words[number] if number in words else ""})'


def decoded(text):
    return re.sub(r'\\(.)', lambda found: '\n' if found.group(1) == 'n' else found.group(1), text)


def limit():
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_OUTPUT, MOST_OUTPUT))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_limited(command, cwd, output, seconds, environment=None, limited=True):
    """Runs in a session of its own, all of which is ended after `seconds`. Gives the exit code, None when it took too long."""
    with open(output, 'ab') as out:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                   env=environment, start_new_session=True, preexec_fn=limit if limited else None)
    try:
        return process.wait(timeout=max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def head(path, lines=25):
    """The beginning: of many errors the first one counts."""
    with open(path, errors='replace') as file:
        kept = [line.rstrip('\n')[:2000] for line in itertools.islice(file, lines)]
        more = sum(1 for _ in file)
    return '\n'.join(kept + ([f'… and {more} more line{"s" if more > 1 else ""}'] if more else []))


def broken_off(log, alone, builder):
    """True if start.h has an error at its end, which the compiler finds only in what follows. Then `log` names its place."""
    place = re.compile(r'(start\.h|/dev/null):\d+(:\d+)?: (fatal )?error')
    own = log.with_name('alone')
    if place.search(log.read_text(errors='replace')) or run_limited(alone, builder.root, own, 120, limited=False) == 0:
        return False
    if not place.search(own.read_text(errors='replace')):
        return False
    own.replace(log)
    return True


def includes_solution(dependencies, root):
    """Whether a solution is among the files of a rule for make, by whatever way they are named there."""
    solutions = (root / 'exercises/solutions').resolve()
    files = re.findall(r'(?:\\.|[^\s\\])+', dependencies.read_text(errors='replace').replace('\\\n', ' '))
    return any((root / re.sub(r'\\(.)', r'\1', each)).resolve().is_relative_to(solutions) for each in files)


def check(builder, exercise, start=None, seed=0, seconds=SECONDS):
    """Compiles the exercise with the given start.h, and runs its cases. Never raises for what start.h holds."""
    start = start or exercise.start
    begin = time.monotonic()
    try:
        if start.exists() and not (start.is_file() and start.stat().st_size < MOST_TEXT):
            return Result(exercise, error=f'{start} is no file of less than {MOST_TEXT >> 10} KB')
        text = start.read_text(errors='replace')
    except OSError as error:
        return Result(exercise, error=f'{start} cannot be read: {error.strerror}')
    if found := TOUCHES_DOCTEST.search(text):
        return Result(exercise, error=f'start.h may not contain "{found.group(0).strip()} …": the cases are the teacher\'s')
    with tempfile.TemporaryDirectory(prefix='course-') as scratch:
        work = Path(scratch)
        shown = exercise.folder
        if start != exercise.start:  # compiled from a copy, so that nothing beside it is taken
            shown = work / 'submission'
            shown.mkdir()
            (shown / 'start.h').write_text(text)
        near = os.path.relpath(shown, builder.root) if shown == exercise.folder else str(shown)
        log = work / 'log'
        c = builder.commands
        flags = ['-I', near] + builder.compile_flags() + builder.prefix
        compile_ = ([c['launcher']] if shutil.which(c['launcher'] or '-') else []) + [c['compiler']]
        compile_ += flags + ['-c', str(exercise.test), '-o', str(work / 'test.o'), '-MMD', '-MF', str(work / 'included')]
        code = run_limited(compile_, builder.root, log, 120, limited=False)
        if code != 0:
            why = 'it does not compile' if code is not None else 'the compiler was stopped after 120 s'
            alone = [c['compiler'], *flags, '-w', '-fsyntax-only', '-include', f'{near}/start.h', '-x', 'c++', '/dev/null']
            broken = 'start.h ends in the middle of something: is a } or ; missing at its end?\n'
            hint = broken if broken_off(log, alone, builder) else ''
            return Result(exercise, error=f'{why}:\n{hint}{head(log)}', seconds=time.monotonic() - begin)
        output = head(log)
        if includes_solution(work / 'included', builder.root):
            return Result(exercise, error='start.h includes a solution', seconds=time.monotonic() - begin)
        link = [c['compiler'], str(work / 'test.o'), '-o', str(work / 'exercise'), '-rdynamic'] + c['libraries']
        link += [f'-Wl,-rpath,{Path(each).parent}' for each in c['libraries'] if '.so' in each or '.dylib' in each]
        if run_limited(link, builder.root, log, 120, limited=False) != 0:
            if missing := builder.missing():
                raise Trouble(f'{missing} is missing: build it, or delete {builder.build}')
            return Result(exercise, error=f'it does not link:\n{head(log)}', seconds=time.monotonic() - begin)
        cases, printed = run_cases(exercise, work, seed, seconds)
        output = '\n'.join(part for part in (output, printed) if part)
        return Result(exercise, cases, output=output, seconds=time.monotonic() - begin)


def run_cases(exercise, work, seed, seconds):
    """Runs the cases in their order. After one that ends the program the next ones run in a new one, while time remains."""
    deadline = time.monotonic() + seconds
    found, first = {}, 0
    while first < len(exercise.cases):
        # A name that nobody can guess, and that is out of the environment when a case runs.
        handle, results = tempfile.mkstemp(dir=work)
        os.close(handle)
        environment = dict(os.environ, HALFTAPE_COURSE_RESULTS=results, HALFTAPE_COURSE_SEED=str(seed))
        code = run_limited([str(work / 'exercise'), f'--first={first + 1}', '--order-by=file'], work, work / 'printed',
                           deadline - time.monotonic(), environment)
        name, messages, done = None, [], False
        for line in Path(results).read_text(errors='replace').splitlines():
            word, _, text = line.partition('\t')
            if word == 'case':
                name, messages = decoded(text), []
            elif word == 'fail':
                messages.append(decoded(text))
            elif word == 'end' and name is not None:
                found[name] = (text if text in ('pass', 'fail') else 'fail', '\n'.join(messages))
                name = None
            elif word == 'done':
                done = True
        if done and code is not None:
            break
        # The first case without an end is the one that ended the program.
        open_ = next((i for i in range(first, len(exercise.cases)) if exercise.cases[i] not in found), None)
        if open_ is None:
            break
        why = ended_by(code) if code is not None else f'the program was stopped: it ran for more than {seconds} s'
        found[exercise.cases[open_]] = ('error', '\n'.join(messages + [why]))
        if code is None:
            break
        first = open_ + 1
    missing = ('error', 'this case was not reached')
    return [(name, *found.get(name, missing)) for name in exercise.cases], head(work / 'printed', 20)
