"""Functions of scripts that no run without a GPU or with git comes to: functions.py FOLDER"""
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import types
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"
sys.dont_write_bytecode = True


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


work = Path(sys.argv[1])

# A group of NCCL in folders whose names are no single words.
tempfile.tempdir = str(work / "a group's")
program = work / "it's here/tests/cuda/nccl_check"
program.parent.mkdir(parents=True)
program.write_text('#!/bin/sh\ntest $# = 3 && test -d "$3" && echo \'{"rank": \'$1\'}\'\n')
program.chmod(0o755)
os.mkdir(tempfile.tempdir)
os.chdir(work)
options = types.SimpleNamespace(build="it's here", deps="deps", quick=False, bench=False)
check = script("gpu_check").Check(options, types.SimpleNamespace(save_soon=lambda: None))
check.step_nccl()
assert check.found == {"groups": [{"rank": 0}], "ranks": 1}, check.found
assert check.deps == work / "deps", check.deps

# Without git nobody knows whether a file was edited.
os.environ["PATH"] = ""
assert not script("course").Course.differs_from_commit(SCRIPTS / "course")
