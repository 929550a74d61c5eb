// Four number formats of 8 and 16 bits, exactly as their bits say.
'use strict';

/** `top`: the exponent of the largest numbers. E4M3 ("fn") has no infinity, and one NaN of each sign. */
const FORMATS = {
  float16: {name: 'float16 (half)', exponent: 5, mantissa: 10, bias: 15, infinities: true},
  bfloat16: {name: 'bfloat16', exponent: 8, mantissa: 7, bias: 127, infinities: true},
  e4m3: {name: 'float8 E4M3', exponent: 4, mantissa: 3, bias: 7, infinities: false},
  e5m2: {name: 'float8 E5M2', exponent: 5, mantissa: 2, bias: 15, infinities: true},
};

const bitsOf = format => 1 + format.exponent + format.mantissa;

/** {sign, exponent, mantissa} as whole numbers, the value, and what kind of number it is. */
function decode(format, bits) {
  const mantissa = bits & ((1 << format.mantissa) - 1);
  const exponent = (bits >> format.mantissa) & ((1 << format.exponent) - 1);
  const negative = bits >> (bitsOf(format) - 1) & 1;
  const last = (1 << format.exponent) - 1;
  let size, kind;
  if (exponent === last && format.infinities) {
    size = mantissa ? NaN : Infinity;
    kind = mantissa ? 'not a number' : 'infinite';
  } else if (exponent === last && mantissa === (1 << format.mantissa) - 1) {
    size = NaN;
    kind = 'not a number';
  } else if (exponent === 0) {
    size = mantissa * 2 ** (1 - format.bias - format.mantissa);
    kind = mantissa ? 'subnormal' : 'zero';
  } else {
    size = (1 + mantissa / (1 << format.mantissa)) * 2 ** (exponent - format.bias);
    kind = 'normal';
  }
  return {negative, exponent, mantissa, kind, value: negative ? -size : size,
          step: 2 ** (Math.max(exponent, 1) - format.bias - format.mantissa)};
}

/** The bits of the number of the format that is nearest to x, ties to even. Beyond the largest:
    infinity, or NaN where there is none. */
function encode(format, x) {
  const sign = (x < 0 || Object.is(x, -0) ? 1 : 0) << (bitsOf(format) - 1);
  const last = (1 << format.exponent) - 1, full = (1 << format.mantissa) - 1;
  const nan = last << format.mantissa | (format.infinities ? 1 << (format.mantissa - 1) : full);
  const beyond = format.infinities ? last << format.mantissa : nan;
  if (Number.isNaN(x)) return nan;
  const size = Math.abs(x);
  if (size === 0) return sign;
  if (size === Infinity) return sign | beyond;
  let e = Math.floor(Math.log2(size));  // may be one off next to a power of two
  if (2 ** e > size) --e;
  if (2 ** (e + 1) <= size) ++e;
  e = Math.max(e, 1 - format.bias);
  const scaled = size / 2 ** (e - format.mantissa);  // exact: a power of two
  let whole = Math.floor(scaled);
  const rest = scaled - whole;
  if (rest > 0.5 || (rest === 0.5 && whole % 2 === 1)) ++whole;
  // A carry out of the mantissa runs into the exponent, which is what rounding up means.
  const bits = whole + (e + format.bias - 1) * 2 ** format.mantissa;
  const largest = format.infinities ? (last << format.mantissa) - 1 : nan - 1;
  return sign | (bits > largest ? beyond : bits);
}
