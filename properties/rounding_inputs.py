"""Arguments that the correctly rounded functions are judged on, from a counter generator."""

import math
import struct
from collections.abc import Callable, Iterator

_MASK = (1 << 64) - 1


class Stream:
    """SplitMix64: the same arguments on every machine, Python and numpy."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def bits(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def uniform(self, low: float, high: float) -> float:
        """A double between low and high."""
        return low + (high - low) * ((self.bits() >> 11) * 2.0**-53)

    def scaled(self, lowest: int, highest: int) -> float:
        """A random significand times 2^e, lowest <= e < highest, of either sign."""
        exponent = lowest + self.bits() % (highest - lowest)
        return math.ldexp(self.uniform(1.0, 2.0), exponent) * (1.0 - 2.0 * (self.bits() & 1))

    def any_double(self) -> float:
        """Random bits as a double, the exponent of infinities replaced."""
        bits = self.bits()
        if bits >> 52 & 2047 == 2047:
            bits ^= 1 << 62
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


Draw = Callable[[Stream], float]


def _step_from(centre: float, stream: Stream) -> float:
    """centre moved by at most 2^12 units in its last place."""
    return centre + (stream.bits() % 8193 - 4096) * math.ulp(centre)


def _near_half_pi(stream: Stream) -> float:
    """A double within three units of a multiple of pi/2 below 2^60."""
    multiple = (stream.bits() >> (4 + stream.bits() % 60)) * (math.pi / 2)
    return multiple + (stream.bits() % 7 - 3.0) * math.ulp(multiple)


_CIRCLE: list[Draw] = [
    lambda s: s.uniform(0.0, 16.0),
    lambda s: s.uniform(-2048.0, 2048.0),
    _near_half_pi,
    lambda s: s.scaled(-60, 0),
    lambda s: s.scaled(-30, -20),
    lambda s: s.scaled(990, 1023),
    lambda s: s.any_double(),
]

_REGIONS: dict[str, list[Draw]] = {
    "exp": [
        lambda s: s.uniform(-745.2, 709.8),
        lambda s: s.uniform(-30.0, 0.0),
        lambda s: s.uniform(-2.0, 2.0),
        lambda s: s.scaled(-60, 0),
        lambda s: s.uniform(-746.0, -707.9),  # subnormal results
        lambda s: _step_from(709.782712893384, s),
        lambda s: _step_from(-745.1332191019412, s),
        lambda s: s.any_double(),
    ],
    "log": [
        lambda s: abs(s.scaled(-40, 10)),
        lambda s: s.uniform(0.5, 2.0),
        lambda s: _step_from(1.0, s),
        lambda s: 1.0 + s.scaled(-40, -1),
        lambda s: (1 + (s.bits() >> (12 + s.bits() % 52))) * 5e-324,  # subnormal arguments
        lambda s: abs(s.any_double()) + 5e-324,
    ],
    "log1p": [
        lambda s: s.uniform(0.0, 300.0),
        lambda s: s.uniform(-1.0 + 2.0**-53, 1.0),
        lambda s: s.scaled(-60, 0) / 2.0,
        lambda s: -1.0 + abs(s.scaled(-53, -1)),
        lambda s: abs(s.scaled(50, 1023)),
        lambda s: s.scaled(-1074, -990),
        lambda s: abs(s.any_double()),
    ],
    "sin": _CIRCLE,
    "cos": _CIRCLE,
}


def arguments(function: str, count: int, *, seed: int = 0) -> list[float]:
    """count finite arguments inside the domain, its regions in turn."""
    stream, regions = Stream(seed), _REGIONS[function]
    return [regions[i % len(regions)](stream) for i in range(count)]


def powers(count: int, *, seed: int = 0) -> Iterator[tuple[float, list[float]]]:
    """A hundred bases, each with count / 100 exponents across its whole range of results."""
    stream = Stream(seed)
    bases: list[Draw] = [
        lambda s: s.uniform(1.0, 1e6),
        lambda s: _step_from(1.0, s),
        lambda s: abs(s.any_double()) + 5e-324,
        lambda s: abs(s.scaled(-8, 8)),
        lambda s: float(1 + s.bits() % 1000),
    ]
    for i in range(100):
        base = bases[i % len(bases)](stream)
        reach = min(1080.0 / max(abs(_log2(base)), 2.0**-53), 1e300)
        exponents: list[Draw] = [
            lambda s: s.uniform(-1.0, 0.0),
            lambda s, reach=reach: s.uniform(-reach, reach),  # type: ignore[misc]
            lambda s, reach=reach: _step_from(reach * (1024.0 / 1080.0), s),  # type: ignore[misc]
            lambda s: (s.bits() % 65 - 32.0) / 2.0 ** (s.bits() % 6),
            lambda s: s.any_double(),
        ]
        yield base, [exponents[j % len(exponents)](stream) for j in range(count // 100)]


def _log2(x: float) -> float:
    fraction, exponent = math.frexp(x)
    return exponent + math.log2(fraction) if x != 1.0 else 0.0


# Hard cases: the real value and a boundary between two doubles agree to about the given
# number of bits. Those of exp beyond 2^-53 came out of 10^9 arguments judged at 300 bits; the
# others from the leading terms of the series (log 1+u, sin x = x - x^3/6, cos x = 1 - x^2/2)
# or from a search over 10^6 arguments.
HARD: dict[str, list[str]] = {
    "exp": [
        "0x1.0p-53",  # 107 bits: 1 + 2^-53 + 2^-107
        "-0x1.0p-54",  # 109
        "0x1.8p-52",  # 104
        "-0x1.8p-53",  # 105
        "0x1.4p-51",  # 103
        "0x1.bfffffffffffdp-51",  # 108
        "0x1.8a5b2f12bbc5cp+0",  # 94
        "-0x1.0ba3c508aab7cp+7",  # 84
        "-0x1.2ce8a78fbe511p+5",  # 82
        "0x1.5b9aef7df13bfp+8",  # 81
        "-0x1.0aecc4bc3c8dbp-1",  # 81
        "-0x1.5eb854179737cp-1",  # 81
        "-0x1.9a7f24e49b3f0p+4",  # 81
        "-0x1.cad09869e6890p+7",  # 81
        "-0x1.3c087ecc21e73p+8",  # 81
        "0x1.30fe2dd29dd72p+9",  # 80
        "0x1.9ded87b1e56fep+7",  # 80
        "0x1.ab323971ec42cp+0",  # 80
    ],
    "log": [
        "0x1.0000000000006p+0",  # 100
        "0x1.0000000000014p+0",  # 97
        "0x1.000000000001cp+0",  # 96
        "0x1.0000000000048p+0",  # 94
        "0x1.0000000000110p+0",  # 90
    ],
    "log1p": [
        "0x1.0p-53",  # 107
        "0x1.41ea8b4af2097p+5",  # 78
        "0x1.00004p-35",  # 74
        "0x1.0f9984ed60d8bp-14",  # 73
        "0x1.2e2518371de3ep-18",  # 72
        "0x1.ec744p+18",  # 72, an integer
        "0x1.2b8d24p+22",  # 69, an integer
        "0x1.0fc4p+15",  # 72, an even integer
        "0x1.a98fc9e8f5f0dp+833",  # 76
    ],
    "sin": [
        "0x1.7137449123efep-26",  # 102
        "0x1.7137449123efdp-26",  # 102
        "0x1.4f747439b348fp-25",  # 101
        "0x1.8db9cb7511ea4p-25",  # 100
        "0x1.47cc096a9593ep+2",  # 72
        "0x1.259b13780f612p-11",  # 72
        "0x1.6ac5b262ca1ffp+849",  # the double nearest to a multiple of pi/2
    ],
    "cos": [
        "0x1.6a09e667f3bcdp-27",  # 106
        "0x1.3988e1409212ep-26",  # 104
        "0x1.94c583ada5b53p-26",  # 105
        "0x1.6fa1c5bc5f7c6p+3",  # 76
        "0x1.3f16c718465d8p-5",  # 72
        "0x1.6ac5b262ca1ffp+849",  # the double nearest to a multiple of pi/2
    ],
}

# base, exponent: a double, a midpoint or within 2^-100 of one.
HARD_POWERS: list[tuple[str, str]] = [
    ("0x1.0p+2", "-0x1.0p-1"),  # 4^-0.5 = 0.5
    ("0x1.0000002p+54", "0x1.0p-1"),  # a square, rooted
    ("0x1.0000002p+27", "0x1.0p+1"),  # 54 bits: a midpoint
    ("0x1.8p+1", "0x1.1p+5"),  # 3^34: 54 bits
    ("0x1.4p+2", "0x1.7p+4"),  # 5^23: 54 bits, as the next three
    ("0x1.9p+4", "0x1.7p+3"),  # 25^11.5 = 5^23
    ("0x1.cp+2", "0x1.3p+4"),  # 7^19
    ("0x1.fffd8p+17", "0x1.8p+1"),  # 262139^3
    ("0x1.8p+1", "0x1.18p+5"),  # 3^35: 56 bits
    ("0x1.44p+6", "0x1.08p+3"),  # 81^8.25 = 3^33
    ("0x1.0p-10", "0x1.adp+6"),  # 2^-1072.5
    ("0x1.0p+1", "-0x1.0c8p+10"),  # 2^-1074
    ("0x1.0p+1", "-0x1.0ccp+10"),  # 2^-1075: half way to zero
    ("0x1.0p+1", "-0x1.0ccp+20"),  # far below
    ("0x1.0p+1", "0x1.ffcp+9"),  # 2^1023
    ("0x1.0p+1", "0x1.0p+10"),  # 2^1024: overflow
    ("0x1.8p-537", "0x1.0p+1"),  # 9 * 2^-1076: 2.25 of the smallest
    ("0x1.4p-536", "0x1.0p+1"),  # 25 * 2^-1076: 6.25
    ("0x1.8p-358", "0x1.8p+1"),  # 27 * 2^-1077
    ("0x1.cp-536", "0x1.0p+1"),  # 49 * 2^-1076
    ("0x1.0p-1074", "0x1.0p-1"),  # 2^-537
    ("0x1.0p-1074", "0x1.0p-10"),  # the smallest double
    ("0x1.fffffffffffffp-1", "0x1.0p-1"),  # 108 bits
    ("0x1.0000000000001p+0", "0x1.0p-1"),  # 108
    ("0x1.0000000000001p+0", "0x1.8p+0"),  # 106
    ("0x1.fffffffffffffp-1", "0x1.8p+0"),  # 107
    ("0x1.0000000000001p+0", "0x1.4p+1"),  # 104
    ("0x1.0000000000003p+0", "0x1.0p-1"),  # 104
    ("0x1.0000000000001p+0", "0x1.c6bf52634p+49"),  # 10^15
    ("0x1.fffffffffffffp-1", "0x1.0p+63"),
    ("0x1.0000000000001p+0", "0x1.7e43c8800759cp+996"),  # 10^300
    ("0x1.0000000000001p+0", "0x1.56e1fc2f8f359p-997"),  # 10^-300
    ("0x1.fffffffffffffp+1023", "0x1.0p+0"),
    ("0x1.fffffffffffffp+1023", "-0x1.0p+0"),
    ("0x1.0p-1074", "-0x1.0p+0"),
]
