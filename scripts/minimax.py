#!/usr/bin/env python3
"""Derives the polynomials of cpu/vector/math.h: minimax approximations of the relative error by Remez'
exchange algorithm, in 40 digits, rounded to double, or to float where so noted. Prints each as hexadecimal C++ constants with
the largest relative error of the result that it stands for. Then the tables of cpu/vector/tables.h, each with the largest error
of a part, before the last rounding.

    pip install mpmath && python3 scripts/minimax.py
"""
import math
import struct

from mpmath import lu_solve, matrix, mp, mpf

mp.dps = 40


def as_float(x):
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def remez(f, degree, low, high, weight):
    """Coefficients c with the least maximum of |Σ c_i x^i - f(x)| / weight(x), and that maximum."""
    low, high = mpf(low), mpf(high)

    def chebyshev(count):
        return [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * i / (count - 1))
                for i in range(count)]

    points, grid = chebyshev(degree + 2), chebyshev(12 * (degree + 2) + 1)
    for _ in range(12):
        system, values = matrix(degree + 2, degree + 2), matrix(degree + 2, 1)
        for i, x in enumerate(points):
            for j in range(degree + 1):
                system[i, j] = x**j
            system[i, degree + 1] = (-1)**i * weight(x)
            values[i] = f(x)
        solution = lu_solve(system, values)
        c, level = [solution[j] for j in range(degree + 1)], abs(solution[degree + 1])
        errors = [(mp.polyval(c[::-1], x) - f(x)) / weight(x) for x in grid]
        extrema = []  # the largest error of each run of one sign
        for i, e in enumerate(errors):
            if extrema and (errors[extrema[-1]] >= 0) == (e >= 0):
                if abs(e) > abs(errors[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > degree + 2:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        worst = max(map(abs, errors))
        if len(extrema) < degree + 2 or worst < level * mpf("1.001"):
            break
        points = [grid[i] for i in extrema]
    return c, worst


def show(name, degree, f, low, high, weight=None, of_floats=False):
    c, worst = remez(f, degree, low, high, weight or f)
    print(f"// {name}: relative error 2^{float(mp.log(worst, 2)):.1f}")
    print(",\n".join(float(as_float(x) if of_floats else x).hex() for x in c), flush=True)


def at_zero(f, limit):
    """f with its limit where it is 0/0."""
    return lambda x: limit if abs(x) < mpf(10)**-25 else f(x)


ln2, quarter = mp.log(2), (mp.pi / 4)**2
# 2^f = (g + f)/(g - f) with g(f^2) = f coth(f ln 2 / 2).
show("kExp2: g", 3, at_zero(lambda z: mp.sqrt(z) * mp.coth(mp.sqrt(z) * ln2 / 2), 2 / ln2), 0, 0.25)
# ln m = 2 artanh s with s = (m - 1)/(m + 1), |s| <= 0.1716 for m from sqrt(1/2) to sqrt 2.
show("kLog: 2 artanh(sqrt z)/sqrt z", 4,
     at_zero(lambda z: 2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z), mpf(2)), 0, (mp.sqrt(2) - 1)**4)
show("kSin: sin(sqrt u)/sqrt u", 4,
     at_zero(lambda u: mp.sin(mp.sqrt(u)) / mp.sqrt(u), mpf(1)), 0, quarter)
show("kCos: cos(sqrt u)", 4, lambda u: mp.cos(mp.sqrt(u)), 0, quarter)


def erfc_of(t):
    x = 3 * (1 + t) / (1 - t)
    return (x + 3) * mp.exp(x * x) * mp.erfc(x)


largest = mpf("10.1")
show("kErfc: (x + 3) e^(x^2) erfc x of t = (x - 3)/(x + 3)", 11, erfc_of, -1,
     (largest - 3) / (largest + 3))

# In float. 2^f = 1 + f g(f): an error of g counts as much as it moves the power.
show("kPower: (2^f - 1)/f", 5, at_zero(lambda f: (2**f - 1) / f, ln2), -0.5, 0.5,
     lambda f: 2**f / max(abs(f), mpf(10)**-12), of_floats=True)


def tail(x):  # of the normal distribution: what lies above x
    return mp.erfc(x / mp.sqrt(2)) / 2


# ln(1 + t) = t + t^2 h(t).
show("kLog1p: (ln(1 + t) - t)/t^2", 3, lambda t: (mp.log(1 + t) - t) / t**2 if abs(t) > mpf(10)**-9 else mpf(-1) / 2 + t / 3,
     -1 / mpf(32), 1 / mpf(32), lambda t: 1 / max(abs(t), mpf(10)**-3), of_floats=True)


def ulp(y):
    return mpf(2)**(mp.floor(mp.log(abs(y), 2)) - 23)


def fit(f, low, high, c, powers, known):
    """Floats p with f(c + r) = known(r) + sum p_i r^powers_i, and how far that is off: least squares at Chebyshev's points,
    by Lawson's weights nearly a minimax of the error in ulps."""
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (i + mpf(1) / 2) / 60) for i in range(60)]
    rows = [([(x - c)**power / ulp(f(x)) for power in powers], (f(x) - known(x - c)) / ulp(f(x))) for x in points]
    weights = [mpf(1)] * len(rows)
    for _ in range(12):
        system, values = matrix(len(powers), len(powers)), matrix(len(powers), 1)
        for (a, y), weight in zip(rows, weights):
            for i in range(len(powers)):
                values[i] += weight * a[i] * y
                for j in range(len(powers)):
                    system[i, j] += weight * a[i] * a[j]
        p = lu_solve(system, values)
        errors = [abs(sum(a[i] * p[i] for i in range(len(powers))) - y) for a, y in rows]
        weights = [weight * error for weight, error in zip(weights, errors)]
        weights = [weight / sum(weights) for weight in weights]
    p = [as_float(x) for x in p]
    error = max(abs(known(x - c) + sum(a * (x - c)**power for a, power in zip(p, powers)) - f(x)) / ulp(f(x))
                for x in (low + (high - low) * i / 200 for i in range(1, 200)))
    return p, error


def show_parts(name, parts):
    """Of each part its error in ulps and its column."""
    print(f"// {name}: {float(max(error for error, _ in parts)):.3f} ulp")
    for row in zip(*(column for _, column in parts)):
        print("{" + ", ".join(float(x).hex() + "f" for x in row) + "},", flush=True)


def quarters(start):
    """The ends of sixteen parts from 0 on: where x + start enters another quarter of an octave."""
    first = next(i for i in range(-8, 8) if mpf(2)**(i // 4) * (4 + i % 4) / 4 >= start)
    return [mpf(2)**(i // 4) * (4 + i % 4) / 4 - start for i in range(first, first + 17)]


def by_place(parts, start):
    """In the order of the lowest four bits above the 21st of 2x + 2 start."""
    first = struct.unpack("i", struct.pack("f", float(2 * start)))[0] >> 21
    return [parts[(i - first) % 16] for i in range(16)]


def part_of_tanh(low, high):
    """About 0, or a c near the middle where tanh c and its slope are nearest to floats."""
    def off(c):
        y, slope = mp.tanh(c), 1 / mp.cosh(c)**2
        return (abs(y - as_float(y)) + abs(slope - as_float(slope)) * (high - low) / 2) / ulp(y)

    middle, steps = (low + high) / 2, 1500
    # Where tanh is all but 1, a neighbour differs too little.
    step = max(ulp(middle), (high - low) / 16 / steps) if mp.cosh(middle)**-2 * (high - low) < mpf(2)**-5 else ulp(middle)
    c = mpf(0) if low == 0 else min((as_float(middle + i * step) for i in range(-steps, steps)), key=off)
    y, slope = as_float(mp.tanh(c)), as_float(1 / mp.cosh(c)**2)
    p, error = fit(mp.tanh, low, high, c, range(2, 7), lambda r: y + slope * r)
    return error, [c, y, slope] + p


def part_of_log(low, high):
    """1, or a c where ln c is nearest to a multiple of 2^-17, and 1/c to a float, and |t| at most 2^-5. Mantissas as bits."""
    def value(bits):
        return struct.unpack("f", struct.pack("I", bits))[0]

    least, largest = value(low), value(high - 1)
    if least < 1 < largest:
        return 0, [1, 0, 1]
    size = min(abs(math.log(least)), abs(math.log(largest)))

    def off(c):
        log, inverse = math.log(c) * 2**17, 1 / c
        return (abs(log - round(log)) / 2**17 + abs(inverse - float(as_float(inverse))) * (largest - least) / 2) / float(ulp(size))

    quarter = (high - low) // 4
    c = min((x for x in map(value, range(low + quarter, high - quarter)) if max(x - least, largest - x) <= x / 32), key=off)
    return off(c), [c, round(math.log(c) * 2**17) / 2**17, as_float(1 / c)]


first = 0x3f334000
show_parts("kPartsOfLog", [part_of_log(first + (i << 19), first + (i + 1 << 19)) for i in range(16)])
start = mpf("0.625")
ends = quarters(start)
show_parts("kPartsOfTanh", by_place([part_of_tanh(*ends[i:i + 2]) for i in range(16)], start))


def mills(x):
    return mp.exp(x * x / 2) * tail(x)


def part_of_mills(low, high):
    c = (low + high) / 2
    p, error = fit(mills, low, high, c, range(6), lambda r: 0)
    return error, [c] + [x / mpf(2)**64 for x in p]


ends = quarters(1)
show_parts("kPartsOfMills", by_place([part_of_mills(*ends[i:i + 2]) for i in range(16)], 1))
