#!/usr/bin/env python3
"""Derives the polynomials of cpu/vector/math.h: minimax approximations of the relative error by Remez'
exchange algorithm, in 40 digits, rounded to double, or to float where so noted. Prints each as hexadecimal C++ constants with
the largest relative error of the result that it stands for.

    pip install mpmath && python3 scripts/minimax.py
"""
import struct

from mpmath import lu_solve, matrix, mp, mpf

mp.dps = 40


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


def show(name, degree, f, low, high, weight=None, as_float=False):
    c, worst = remez(f, degree, low, high, weight or f)
    print(f"// {name}: relative error 2^{float(mp.log(worst, 2)):.1f}")
    rounded = [struct.unpack("f", struct.pack("f", x))[0] if as_float else x for x in map(float, c)]
    print(",\n".join(x.hex() for x in rounded), flush=True)


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
     lambda f: 2**f / max(abs(f), mpf(10)**-12), as_float=True)


def tail(x):  # of the normal distribution: what lies above x
    return mp.erfc(x / mp.sqrt(2)) / 2


def mills_of(t):
    x = 3 * (1 + t) / (1 - t)
    return (x + 3) * mp.exp(x * x / 2) * tail(x)


largest = mpf("14.5")
show("kMills: (x + 3) e^(x^2/2) tail(x) of t = (x - 3)/(x + 3)", 7, mills_of, mpf(-1) / 2,
     (largest - 3) / (largest + 3), as_float=True)
# below(x) = 1/2 + x g(x^2), which is as small as tail(x) for a negative x.
show("kNormal: (1/2 - tail(x))/x of x^2", 5,
     at_zero(lambda z: (mpf(1) / 2 - tail(mp.sqrt(z))) / mp.sqrt(z), 1 / mp.sqrt(2 * mp.pi)), 0, 1,
     lambda z: tail(mp.sqrt(z)) / max(mp.sqrt(z), mpf(10)**-12), as_float=True)
