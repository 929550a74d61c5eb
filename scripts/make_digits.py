#!/usr/bin/env python3
"""Writes io/data/sets/digits_data.inc, the embedded 8x8 digits, from the copy inside scikit-learn.

    python3 -m venv venv && venv/bin/pip install scikit-learn==1.9.1
    venv/bin/python scripts/make_digits.py

Needed only to check where the table comes from: its result is committed. Every sample becomes one
string, 64 pixels row by row in base 17 ('0'..'9', 'a'..'g' for 0..16), then the label. The last
lines printed are the counts and check sums that tests/io/data/digits_test.cpp holds.
"""

import pathlib
import zlib

import numpy as np
from sklearn.datasets import load_digits

LEVELS = "0123456789abcdefg"
HEADER = """\
// The 1,797 images of scikit-learn's load_digits() in its order; made by scripts/make_digits.py.
// 64 pixels in base 17 ('0'..'9', 'a'..'g' for 0..16), row by row, then the label.
//
// "Optical Recognition of Handwritten Digits", E. Alpaydin and C. Kaynak, 1998, UCI Machine
// Learning Repository, doi:10.24432/C50P49, licensed CC BY 4.0: the test half of that set, which is
// what scikit-learn's package carries, written as text. See DIGITS_LICENSE.txt beside this file.
"""


def main():
    data = load_digits()
    pixels, labels = data.images, data.target
    assert pixels.shape == (1797, 8, 8) and labels.shape == (1797,)
    assert np.array_equal(pixels, np.round(pixels)) and 0 == pixels.min() and pixels.max() == 16
    pixels, labels = pixels.reshape(-1, 64).astype("u1"), labels.astype("u1")

    lines = ("".join(LEVELS[p] for p in x) + str(y) for x, y in zip(pixels, labels))
    table = HEADER + "".join(f'"{line}",\n' for line in lines)
    target = pathlib.Path(__file__).resolve().parent.parent / "io" / "data" / "sets" / "digits_data.inc"
    target.write_text(table, encoding="ascii", newline="\n")

    # The split of io/data/sets/digits.cpp: within each class, in file order, every fifth sample is for
    # testing.
    test = np.zeros(len(labels), bool)
    for c in range(10):
        test[np.flatnonzero(labels == c)[4::5]] = True
    for name, rows in (("all", test | True), ("train", ~test), ("test", test)):
        crc = zlib.crc32(pixels[rows].tobytes() + labels[rows].tobytes())
        counts = np.bincount(labels[rows]).tolist()
        print(f"{name:5} {rows.sum():4} samples, per class {counts}, crc32 0x{crc:08x}")


if __name__ == "__main__":
    main()
