#!/usr/bin/env python3
"""LibTorch's own C++ API tests against halftape::torch_compat: how many of them pass.

    scripts/libtorch_api_tests.py --build build/dev [--work FOLDER] [--jobs 2] [FILE ...]

The tests are fetched from Debian's PyTorch source package at run time (apt-get, no root needed); none of
their code is kept in this repository. Every TEST becomes a program of its own, with those helpers of its file
that it names, so that one missing name costs one test. Tests of CUDA are left out. Needs g++ or clang++, libgtest-dev, libgmock-dev, and a build of
the library. Prints per file "passed N of M (compile failures K)"; FOLDER/log holds what each test said.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

FILES = ["autograd", "tensor", "grad_mode", "ordered_dict", "any", "init", "memory", "misc"]
SUITE = "test/cpp/api"
# Headers of LibTorch that a test file includes for a few of its tests; what is in them is missing all the same.
ABSENT = [
    "torch/script.h",
    "ATen/core/op_registration/op_registration.h",
    "ATen/core/boxing/impl/test_helpers.h",
    "torch/csrc/autograd/FunctionsManual.h",
    "torch/csrc/autograd/functions/basic_ops.h",
]
SOURCES = """Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""


def fetch(work: Path) -> Path:
    """The folder test/cpp of the source package, unpacked below `work`."""
    cpp = work / "cpp"
    if (cpp / "api").is_dir():
        return cpp
    for folder in ("lists/partial", "cache/archives/partial"):
        (work / "apt" / folder).mkdir(parents=True, exist_ok=True)
    apt = work / "apt"
    (apt / "debian.sources").write_text(SOURCES)
    options = [
        "-o", f"Dir::Etc::sourcelist={apt}/debian.sources", "-o", "Dir::Etc::sourceparts=-",
        "-o", f"Dir::State::lists={apt}/lists", "-o", f"Dir::Cache={apt}/cache",
    ]
    subprocess.run(["apt-get", *options, "-qq", "update"], check=True)
    # apt checks what it fetches against the signed index.
    subprocess.run(["apt-get", *options, "-qq", "--download-only", "--tar-only", "source", "pytorch"], cwd=work, check=True)
    archive = next(work.glob("pytorch_*.orig.tar.*"))
    with tarfile.open(archive) as tar:
        for member in tar:
            inside = member.name.partition("/test/cpp/")[2]
            if member.isfile() and inside.startswith(("api/", "common/")):
                target = cpp / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(tar.extractfile(member).read())
    return cpp


def chunks(text: str):
    """The top-level pieces of a source file: directives, declarations, definitions, in order."""
    depth, i, start = 0, 0, 0
    tokens = re.compile(
        r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*|[{}()\[\];]|[^\s]',
        re.S | re.M)
    while match := tokens.search(text, i):
        token, i = match.group(), match.end()
        if depth == 0 and token.lstrip().startswith("#"):
            # A directive may run over several lines.
            end = match.start()
            while True:
                line_end = text.find("\n", end)
                line_end = len(text) if line_end < 0 else line_end
                if not text[:line_end].endswith("\\"):
                    break
                end = line_end + 1
            yield text[match.start():line_end]
            i = start = line_end
            continue
        if token in "{([":
            depth += 1
        elif token in "})]":
            depth -= 1
        ends = depth == 0 and token == ";"
        if depth == 0 and token == "}":
            rest = text[i:].lstrip()
            head = bare(text[start:match.start()]).split("{")[0]
            is_type = re.search(r"\b(struct|class|enum|union)\b[^()]*$", head)
            ends = not is_type and not rest.startswith((";", ",", ")"))
        if ends:
            piece = text[start:i].strip()
            start = i
            if piece:
                yield piece


def bare(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S).strip()


def names(chunk: str) -> set:
    """What a piece declares, roughly: enough to know which pieces a test needs."""
    code = bare(chunk)
    if define := re.match(r"#\s*define\s+(\w+)", code):
        return {define.group(1)}
    found = set(re.findall(r"\b(?:struct|class|enum)\s+(\w+)", code.split("{")[0]))
    if re.match(r"(inline )?namespace\b", code):
        found |= set(re.findall(r"\b(?:struct|class)\s+(\w+)", code))
    head = code.split("{")[0]
    found |= set(re.findall(r"(\w+)\s*(?:\(|=|$)", head))
    if "(" not in head:
        found |= set(re.findall(r"\w+::(\w+)\s*;", head)[-1:])
    return found - {"if", "for", "while", "template", "return", "operator"}


def pieces(path: Path):
    """(name of the test or None, text, names) for every piece of a file; inner pieces of namespaces alone."""
    for chunk in chunks(path.read_text()):
        code = bare(chunk)
        if space := re.match(r"namespace\s+([\w:]*)\s*\{(.*)\}\s*$", code, re.S):
            for inner in namespaced(space.group(1), space.group(2)):
                yield None, inner, names(re.sub(r"^(namespace [\w:]* ?\{\s*)+", "", inner))
            continue
        test = re.match(r"TEST(?:_F)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", code)
        yield (test and f"{test.group(1)}.{test.group(2)}"), chunk, names(chunk)


def namespaced(space: str, body: str):
    for inner in chunks(body):
        if deeper := re.match(r"namespace\s+([\w:]*)\s*\{(.*)\}\s*$", bare(inner), re.S):
            for piece in namespaced(deeper.group(1), deeper.group(2)):
                yield f"namespace {space} {{\n{piece}\n}}"
        elif inner.startswith("#"):
            yield inner
        else:
            yield f"namespace {space} {{\n{inner}\n}}"


def programs(cpp: Path, name: str):
    """(test, source) for every test of a file."""
    support = [p for f in ("common/support.h", "api/support.h") for p in pieces(cpp / f)]
    definitions = list(pieces(cpp / "api/support.cpp"))
    baseline = list(pieces(cpp / "api/init_baseline.h")) if name == "init" else []
    own = list(pieces(cpp / "api" / f"{name}.cpp"))
    helpers = [p for p in support + baseline + definitions + own if p[0] is None]
    helpers = [p for p in helpers if not re.match(r'#\s*(include\s*[<"](?!\w+>)|pragma|if|else|elif|endif)', p[1])]
    for test, text, _ in own:
        if test is None or test.endswith("_CUDA"):
            continue
        words, kept, grew = set(re.findall(r"\w+", bare(text))), set(), True
        always = {i for i, (_, t, _) in enumerate(helpers) if re.match(r"(using namespace|#\s*include)", bare(t))}
        while grew:
            grew = False
            for i, (_, piece, declared) in enumerate(helpers):
                if i not in kept and (i in always or declared & words):
                    kept.add(i)
                    if i not in always:
                        words |= set(re.findall(r"\w+", bare(piece)))
                    grew = True
        body = "\n\n".join(helpers[i][1] for i in sorted(kept)) + "\n\n" + text + "\n"
        yield test, body


def run(command, log: Path, timeout: int) -> bool:
    with log.open("a") as out:
        try:
            return subprocess.run(command, stdout=out, stderr=out, timeout=timeout).returncode == 0
        except subprocess.TimeoutExpired:
            out.write(f"\nno end after {timeout} s\n")
            return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=FILES, help=f"of {SUITE}, without .cpp")
    parser.add_argument("--build", type=Path, default=Path("build/dev"), help="a build of the library")
    parser.add_argument("--work", type=Path, default=Path("build/libtorch_api_tests"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cxx", default=os.environ.get("CXX", "g++"))
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    work, build = options.work.resolve(), options.build.resolve()
    work.mkdir(parents=True, exist_ok=True)
    cpp = fetch(work)

    # One precompiled header with what every test includes.
    (work / "log").mkdir(exist_ok=True)
    include = work / "include"
    for header in ABSENT:
        (include / header).parent.mkdir(parents=True, exist_ok=True)
        (include / header).write_text("#pragma once\n")
    (include / "api_test.h").write_text(
        "#include <torch/torch.h>\n#include <gmock/gmock.h>\n#include <gtest/gtest.h>\n#include <algorithm>\n#include <cmath>\n"
        "#include <functional>\n#include <mutex>\n#include <string>\n#include <thread>\n#include <vector>\n"
        "namespace torch { namespace test {} }\n")
    compiler = [
        options.cxx, "-std=c++20", "-O0", "-w", f"-I{include}", f"-I{root}/cmake/torch_compat",
        f"-I{build}/torch_compat", f"-I{build}/include",
    ]
    header_log = work / "log" / "header.txt"
    header_log.unlink(missing_ok=True)
    if not run([*compiler, "-x", "c++-header", str(include / "api_test.h"), "-o", str(include / "api_test.h.gch")],
               header_log, 600):
        sys.exit(f"<torch/torch.h> does not compile: see {header_log}")
    libraries = [str(next(build.glob("libhalftape.*"))), "-lgtest_main", "-lgmock", "-lgtest", "-lz", "-pthread"]

    def try_one(name: str, test: str, source: str) -> str:
        place = work / "tests" / name
        place.mkdir(parents=True, exist_ok=True)
        file, binary = place / f"{test}.cpp", place / test
        log = work / "log" / f"{name}.{test}.txt"
        log.unlink(missing_ok=True)
        file.write_text(source)
        if not run([*compiler, "-include", "api_test.h", str(file), "-o", str(binary), *libraries], log, 300):
            return "compile"
        passed = run([str(binary)], log, 120)
        binary.unlink()
        return "passed" if passed else "failed"

    everything = {"passed": 0, "compile": 0, "all": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name in options.files:
            tests = list(programs(cpp, name))
            results = dict(zip((t for t, _ in tests), pool.map(lambda t: try_one(name, *t), tests)))
            passed, compile_failures = (sum(r == w for r in results.values()) for w in ("passed", "compile"))
            for test, result in results.items():
                if result != "passed":
                    print(f"  {'does not compile' if result == 'compile' else 'fails'}: {name}.cpp {test}")
            print(f"{name}.cpp: passed {passed} of {len(tests)} (compile failures {compile_failures})", flush=True)
            everything["passed"] += passed
            everything["compile"] += compile_failures
            everything["all"] += len(tests)
    print(f"together: passed {everything['passed']} of {everything['all']} (compile failures {everything['compile']})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
