#!/usr/bin/env python3
"""Writes tests/vectors/: what PyTorch makes of small problems that the tests state again.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0
    venv/bin/python scripts/make_torch_vectors.py [FAMILY ...]

Needed only to check where the numbers come from, or to add a case: its result is committed. One
family of problems is one module of scripts/torch_vectors with a function make(); all of them run
unless some are named. Of a .txt file one line is a name, a count and the values; read by tests/support/vectors.h.
Inputs stand beside the outputs, so that no test repeats them. Everything runs on the CPU, and in
float64 unless the name says float32.
"""

import importlib
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

if __name__ == "__main__":
    families = sorted(p.stem for p in (HERE / "torch_vectors").glob("*.py") if p.stem != "vectors")
    for family in sys.argv[1:] or families:
        importlib.import_module(f"torch_vectors.{family}").make()
