"""scripts/gpu_check against stand-ins that fail, hang, babble or are missing: what ran is in its JSON.
usage: test.py ROOT FOLDER"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT, FOLDER = map(pathlib.Path, sys.argv[1:])
GOOD_TESTS = """
case "$*" in *captured*) echo '{"answer": "right", "epilogue": 1}' >&2; printf '{"half a line' >&2; echo >&2 ;; esac
echo '[doctest] test cases:  3 |  3 passed | 0 failed'"""
GOOD_BENCH = """
while [ $# -gt 1 ]; do [ "$1" != --only ] || workload=$2; [ "$1" != --dtype ] || dtype=$2; shift; done
echo "{\\"lib\\": \\"halftape\\", \\"workload\\": \\"$workload\\", \\"dtype\\": \\"$dtype\\", \\"config\\": \\"graph\\", \\"us_median\\": 40, \\"nodes\\": 77}"
"""
NO_TORCH = "raise ImportError('no torch here')"
failures = 0


def check(what, holds):
    global failures
    print(f"{'ok' if holds else 'NOT OK'}: {what}", flush=True)
    failures += not holds


class Machine:
    """A build and tools of shell scripts."""

    def __init__(self, name, tests=GOOD_TESTS, bench=GOOD_BENCH, smi="echo 'Stand-in, 1.0, 8000 MiB, 9.0'", torch=NO_TORCH):
        self.here = FOLDER / name
        shutil.rmtree(self.here, ignore_errors=True)
        self.program("build/tests/cuda/halftape_gpu_tests", tests)
        self.program("build/bin/bench_train_step", bench)
        self.program("build/bin/train_digits", "echo 'hash 1'; echo 'accuracy float32=98 amp=98 bf16=98'")
        if smi is not None:
            self.program("tools/nvidia-smi", smi)
        (self.here / "python").mkdir()
        (self.here / "python/torch.py").write_text(torch)

    def program(self, path, text):
        file = self.here / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/bash\n" + text + "\n")
        file.chmod(0o755)

    def start(self, *options, out=None, script=ROOT / "scripts/gpu_check", build=True):
        return subprocess.Popen(
            [sys.executable, script, *(["--build", self.here / "build"] if build else []), "--out", out or self.here / "out", *options],
            env={**os.environ, "PATH": f"{self.here}/tools:{os.environ['PATH']}", "PYTHONPATH": str(self.here / "python")},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *options, **more):
        return self.end(self.start(*options, **more))

    def end(self, process):
        output = process.communicate(timeout=60)[0]
        return process.returncode, output, self.found()

    def found(self):
        files = sorted((self.here / "out").glob("*.json"), key=lambda f: f.stat().st_mtime)
        return json.loads(files[-1].read_text())["steps"] if files and files[-1].stat().st_size else {}


# These use up the time that they are given, all at once.
torch_hangs = Machine("torch hangs", torch="import time; time.sleep(100)")
torch_hanging = torch_hangs.start("--bench", "--minutes", "0.3")

bench_hangs = Machine("hang", bench=GOOD_BENCH + '[ "$workload" != a1024 ] || sleep 100')
bench_hanging = bench_hangs.start("--bench", "--minutes", "0.2")

sanitizers = Machine("sanitizers")
sanitizers.program("tools/compute-sanitizer", """while [ "$1" != --no-intro ]; do [ "$1" != --tool ] || tool=$2; shift; done
case "$tool$*" in racecheck*norm_test*) echo 'a hazard'; exit 9 ;; synccheck*) sleep 100 ;; esac
echo '[doctest] test cases:  3 |  3 passed | 0 failed'""")
sanitizing = sanitizers.start("--only", "sanitizers", "--minutes", "0.4")

checkout = Machine("checkout")
source = checkout.here / "checkout"
for file in ("scripts/gpu_check", "benchmarks/gpu_budgets.txt", "tests/cuda/rows_test.cpp"):
    (source / file).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / file, source / file)
checkout.program("tools/cmake", '[ "$1" != --build ] || { sleep 13; cp -r "' + str(checkout.here / "build") + '/." "$2"; }')
(source / "build/gpu").mkdir(parents=True)
building = checkout.start("--quick", "--minutes", "0.2", script=source / "scripts/gpu_check", build=False)

code, said, steps = Machine("good").run("--quick")
check("a quick check passes, and holds answers, cases and lines",
      code == 0 and steps["answers"]["cublaslt"] == [{"answer": "right", "epilogue": 1}] and
      steps["tests"]["cuda/"] >= 60 and len(steps["bench"]["lines"]) == 13 and "4 passed, 0 failed" in said)
summary = next((FOLDER / "good/out").glob("*.md")).read_text()
check("a summary lies beside it", "| bench | passed" in summary and "1 right" in summary)

budgets = dict(line.split("\t")[::2] for line in (ROOT / "benchmarks/gpu_budgets.txt").read_text().splitlines() if "\tnodes\t" in line)
rows = {" ".join(row.split()[:2]): row.split()[-2:] for row in steps["bench"]["table"]}
check("nodes stand beside their budgets, which are of float16",
      rows["a128 float16"] == ["77", budgets["a128"]] and rows["c float16"] == ["77", budgets["c"]] and
      rows["a128 bfloat16"] == ["77", "-"])

code, said, steps = Machine("no torch").run("--bench")
check("without torch ours are measured, and nothing fails",
      code == 0 and len(steps["bench"]["lines"]) == 13 and "no torch" in steps["bench"]["torch"] and steps["bench"]["table"])

CRASHES = """import os, sys
if sys.argv[0] != "-c": os.kill(os.getpid(), 11)
class cuda:
    is_available = staticmethod(lambda: True)"""
code, said, steps = Machine("crash", torch=CRASHES).run("--bench")
check("a torch that crashes costs its own lines",
      code == 0 and len(steps["bench"]["lines"]) == 13 and "exit code -11" in steps["bench"]["failed"][0])

code, said, steps = torch_hangs.end(torch_hanging)
check("so does one that hangs", code == 0 and len(steps["bench"]["lines"]) == 13 and "took more than" in steps["bench"]["torch"])

code, said, steps = bench_hangs.end(bench_hanging)
check("a benchmark that hangs leaves the lines before it, and its own",
      code == 1 and steps["bench"]["result"] == "failed" and
      [line["workload"] for line in steps["bench"]["lines"]] == ["", "a128", "a1024"])

code, said, steps = Machine("babble", tests=r"printf '\xff\xfe\x00'; head -c 30000000 /dev/zero; setsid sleep 30 &" + GOOD_TESTS).run(
    "--only", "halves")
check("megabytes of zeros, wrong characters and a child that holds the pipe do not matter", code == 0 and steps["halves"]["cases"] == 3)

code, said, steps = Machine("partly", tests='case "$*" in *tests/autograd/*) exit 3 ;; *tests/amp/*) exit 0 ;; esac' + GOOD_TESTS).run("--only", "tests,blocking")
check("files that fail leave the others and the next step",
      code == 1 and steps["tests"]["nn/"] > 3 and "autograd/" not in steps["tests"] and
      any("tests/autograd/" in why and "exit code 3" in why for why in steps["tests"]["failed"]) and
      steps["blocking"]["result"] == "passed")

code, said, steps = Machine("small").run("--only", "large,sanitizers")
check("what the machine lacks is skipped", steps["large"]["result"] == "skipped" and "8000 MiB" in steps["large"]["skipped"])

code, said, steps = sanitizers.end(sanitizing)
found = steps["sanitizers"]
check("each sanitizer has its share of the time, and names what it left out and what failed",
      code == 1 and found["memcheck"]["cases"] > 30 and not found["memcheck"]["left out"] and "a hazard" in found["racecheck"]["norm_test*"] and
      not found["synccheck"]["files"] and found["why"] == "racecheck of norm_test*, synccheck, for which there was no time")

for what, smi in ("that fails", "echo 'no driver'; exit 9"), ("that is missing", None):
    machine = Machine("smi", smi=smi)
    machine.program("tools/nvcc", "exit 1")
    code, said, steps = machine.run("--only", "halves")
    check(f"an nvidia-smi {what}, and an nvcc that fails, cost nothing", code == 0 and steps["halves"]["cases"] == 3)

code, said, steps = checkout.end(building)
check("the time of a quick check begins when the build is there", code == 0 and steps["build"]["seconds"] >= 13 and len(steps) == 4)

machine = Machine("pack")
machine.program("tools/dpkg", "echo 'no such package'; exit 1")
code, said, steps = machine.run("--pack", machine.here / "deps")
check("a package that is not there ends --pack with a reason", code == 1 and "no such package" in said and "Traceback" not in said)

machine = Machine("ranks", smi="[ $1 != -L ] || printf 'GPU 0: a\\nGPU 1: b\\n'; echo 'Stand-in, 1.0, 8000 MiB, 9.0'")
code, said, steps = machine.run("--only", "nccl")
check("a build without the program for NCCL skips it", code == 0 and steps["nccl"]["result"] == "skipped")
machine.program("build/tests/cuda/nccl_check", '[ -d "$3" ] && echo "{\\"rank\\": $1, \\"ranks\\": $2}"')
code, said, steps = machine.run("--only", "nccl")
check("NCCL is tried with one rank, and with one for each GPU",
      code == 0 and sorted((g["ranks"], g["rank"]) for g in steps["nccl"]["groups"]) == [(1, 0), (2, 0), (2, 1)])
machine.program("build/tests/cuda/nccl_check", 'echo "rank $1: a wrong sum"; [ $1 = 0 ]')
code, said, steps = machine.run("--only", "nccl")
check("a rank that fails is told", code == 1 and "rank 1: a wrong sum" in steps["nccl"]["why"])
machine.program("build/tests/cuda/nccl_check", 'echo "no NCCL: nowhere"; exit 77')
code, said, steps = machine.run("--only", "nccl")
check("a machine without NCCL skips it", code == 0 and "no NCCL: nowhere" in steps["nccl"]["skipped"])

code, said, steps = Machine("stuck", smi="sleep 100").run("--quick", "--minutes", "0.03")
check("an nvidia-smi that hangs costs its time alone", code == 1 and steps["answers"]["why"] == "the time is up")

for kill in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
    machine = Machine("killed", bench="sleep 100")
    process = machine.start("--quick")
    for _ in range(200):
        time.sleep(0.1)
        if machine.found().get("bench"):
            break
    process.send_signal(kill)
    said = process.communicate(timeout=30)[0]
    steps = machine.found()
    check(f"after signal {kill} the file holds what ran",
          steps["tests"]["result"] == "passed" and steps["bench"]["result"] == "interrupted" and
          (kill == signal.SIGKILL or "3 passed, 1 failed" in said))
    subprocess.run(["pkill", "-f", str(machine.here)])

ends = []
for moment in range(12):
    machine = Machine("killed at any moment")
    process = machine.start("--quick")
    said = process.stdout.readline()  # the signals are caught by now
    time.sleep(0.04 * moment)
    process.send_signal(signal.SIGTERM)
    said += process.communicate(timeout=30)[0]
    ends.append("Traceback" not in said and "failed\n" in said[-20:] and
                (process.returncode == 0) == said.endswith(" 0 failed\n") and
                all(step["result"] in ("passed", "interrupted") for step in machine.found().values()))
check(f"after a signal at any moment the report is whole: {ends}", all(ends))

machine = Machine("git")
machine.program("tools/git", f'echo "$@" >> {machine.here}/asked; echo abc123')
machine.run("--only", "halves")
asked = (machine.here / "asked").read_text()
check("git takes no lock, which would stay when it is killed", "--no-optional-locks status" in asked)

machine = Machine("tests killed", tests="sleep 100")
process = machine.start("--only", "tests")
time.sleep(2)
process.send_signal(signal.SIGTERM)
check("a signal ends tests that run side by side", process.wait(20) == 1)

machine = Machine("twice", tests="sleep 0.3" + GOOD_TESTS)
both = [machine.start("--only", "halves") for _ in range(2)]
check("two at once write two files", [p.wait(30) for p in both] == [0, 0] and len(list((machine.here / "out").glob("*.json"))) == 2)

code, said, _ = Machine("nowhere").run("--only", "halves", out="/dev/null/out")
check("where nothing can be written, it is printed", code == 1 and '"halves": {"result": "passed"' in said)

for wrong in (["--only", "nothing"], ["--minutes", "-1"], ["--minutes", "0"]):
    code, said, _ = Machine("wrong").run(*wrong)
    check(f"{' '.join(wrong)} is refused", code == 2)
sys.exit(failures > 0)
