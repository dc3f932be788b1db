"""Impedance and capacitance per metre of conductors above or below the ground, from their geometry.

With omega = 2 pi f and lambda = j omega mu0 / 2 pi, conductors i, j at (x, h) have

    Z_ii = R_i + lambda ln(1 / GMR_i) + G_ii,   Z_ij = lambda ln(1 / D_ij) + G_ij
    P_ii = ln(2 h_i / r_i) / 2 pi e0,           P_ij = ln(D'_ij / D_ij) / 2 pi e0,    C = inv(P)

where D' is the distance to the image and G the part of the earth's return at resistivity rho = 100 ohm m:

    "carson":      G = omega mu0 / 8 + lambda ln(658.5 sqrt(rho / f)),  the first terms of Carson's series
    "fullcarson":  Carson's series up to the fourth power
    "deri":        G_ij = lambda ln sqrt((h_i + h_j + 2 p)^2 + (x_i - x_j)^2),  p = 1 / sqrt(j omega mu0 / rho)

J. R. Carson, Wave propagation in overhead wires with ground return, Bell System Technical Journal 5 (1926) 539;
A. Deri, G. Tevan, A. Semlyen, A. Castanheira, The complex ground return plane, IEEE Trans. PAS-100 (1981) 3686;
W. H. Kersting, Distribution System Modeling and Analysis, chapters 4 and 5 (concentric neutrals, Kron reduction).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ive

MU0 = 4e-7 * np.pi  # [H/m]
E0 = 8.854e-12  # [F/m] with the digits that OpenDSS takes
RHO = 100.0  # [ohm m]
DEEP = 35.0  # beyond this argument the quotient of the Bessel functions is 1


@dataclass(frozen=True)
class Conductor:
    """A bare wire, or a cable with concentric neutral strands.

    r_ac, r_dc:    [ohm/m]  resistances; the second for the skin effect in the model of Deri and others
    gmr, radius:   [m]      geometric mean radius, and the radius
    cap_radius:    [m]      radius for the capacitance
    strands:       number of neutral strands, 0 = a bare wire
    strand_radius: [m]      of the circle on which their axes lie
    strand_gmr:    [m]      of one strand
    strand_r:      [ohm/m]  of one strand
    insulation:    [m]      outer and inner radius of the insulation
    eps_r:         its relative permittivity
    amps:          normal rating, 0 = not given
    """

    r_ac: float
    r_dc: float
    gmr: float
    radius: float
    cap_radius: float
    strands: int = 0
    strand_radius: float = 0.0
    strand_gmr: float = 0.0
    strand_r: float = 0.0
    insulation: tuple[float, float] = (0.0, 0.0)
    eps_r: float = 1.0
    amps: float = 0.0


def line_constants(
    conductors: list[Conductor], x: np.ndarray, h: np.ndarray, kept: int, frequency_hz: float, earth: str
) -> tuple[np.ndarray, np.ndarray]:
    """Series impedance (k, k) complex [ohm/m] and capacitance (k, k) [nF/m] of the first `kept` conductors.

    x, h:   (n,) [m] positions, h below zero in the ground
    kept:   the others are grounded all along the line: Kron reduction of Z, and their rows dropped from C
    earth:  "carson", "fullcarson" or "deri"
    """
    n = len(conductors)
    shells = [k for k, c in enumerate(conductors) if c.strands]
    at = [*range(n), *shells]  # the place of every conductor, then of every circle of strands
    omega = 2 * np.pi * frequency_hz
    henry = 1j * omega * MU0 / (2 * np.pi)
    z = np.empty((len(at), len(at)), complex)
    for i, a in enumerate(at):
        for j, b in enumerate(at):
            z[i, j] = _earth(x[a] - x[b], abs(h[a]), abs(h[b]), frequency_hz, earth, same=a == b)
            if i != j:
                z[i, j] += henry * np.log(1 / _distance(conductors, x, h, (i, a), (j, b), n))
    for i, c in enumerate(conductors):
        z[i, i] += _resistance(c, frequency_hz, earth) + henry * np.log(1 / c.gmr)
    for i, k in enumerate(shells, n):
        c = conductors[k]
        gmr = (c.strand_gmr * c.strands * c.strand_radius ** (c.strands - 1)) ** (1 / c.strands)
        z[i, i] += c.strand_r / c.strands + henry * np.log(1 / gmr)
    return _kron(z, kept), 1e9 * (_cables(conductors) if shells else _overhead(conductors, x, h))[:kept, :kept]


def _distance(
    conductors: list[Conductor], x: np.ndarray, h: np.ndarray, one: tuple[int, int], two: tuple[int, int], n: int
) -> float:
    """[m] between two of the conductors and circles of strands, given as (row, place)."""
    (i, a), (j, b) = one, two
    apart = float(np.hypot(x[a] - x[b], h[a] - h[b]))
    if (i < n and j < n) or (i >= n and j >= n):
        return apart
    c = conductors[a if i >= n else b]
    if a == b:
        return c.strand_radius
    return float((apart**c.strands - c.strand_radius**c.strands) ** (1 / c.strands))


def _resistance(c: Conductor, frequency_hz: float, earth: str) -> float:
    """[ohm/m] with the skin effect of a round wire in the model of Deri and others, as tabled in Carson's."""
    if earth != "deri":
        return c.r_ac
    a = (1 + 1j) * np.sqrt(frequency_hz * MU0 / c.r_dc)
    quotient = ive(0, a) / ive(1, a) if abs(a) <= DEEP else 1.0
    return float(((1 + 1j) * quotient * np.sqrt(c.r_dc * frequency_hz * MU0) / 2).real)


def _earth(dx: float, h1: float, h2: float, frequency_hz: float, earth: str, *, same: bool) -> complex:
    """[ohm/m] part of the earth's return between two conductors."""
    omega = 2 * np.pi * frequency_hz
    if earth == "carson":
        return complex(omega * MU0 / 8, omega * MU0 / (2 * np.pi) * np.log(658.5 * np.sqrt(RHO / frequency_hz)))
    if earth == "deri":
        depth = 1 / np.sqrt(1j * omega * MU0 / RHO)
        image = np.log(2 * (h1 + depth)) if same else np.log(np.sqrt((h1 + h2 + 2 * depth) ** 2 + dx**2))
        return complex(1j * omega * MU0 / (2 * np.pi) * image)
    image = 2 * h1 if same else float(np.hypot(h1 + h2, dx))
    turn = 0.0 if same else float(np.arccos((h1 + h2) / image))
    k = 2.8099e-3 * image * np.sqrt(frequency_hz / RHO)
    b1, b2 = 1 / (3 * np.sqrt(2)), 1 / 16
    b3, b4, c2 = b1 / 15, b2 / 24, 1.3659315
    d2, d4, c4 = b2 * np.pi / 4, b4 * np.pi / 4, c2 + 1 / 4 + 1 / 6
    cos = [np.cos(m * turn) for m in range(5)]
    real = np.pi / 8 - b1 * k * cos[1] + b2 * k**2 * ((c2 - np.log(k)) * cos[2] + turn * np.sin(2 * turn))
    real += b3 * k**3 * cos[3] - d4 * k**4 * cos[4]
    imaginary = 0.5 * np.log(1.85138 / k) + b1 * k * cos[1] - d2 * k**2 * cos[2] + b3 * k**3 * cos[3]
    imaginary -= b4 * k**4 * ((c4 - np.log(k)) * cos[4] + turn * np.sin(4 * turn))
    return complex(real, imaginary + 0.5 * np.log(image)) * omega * MU0 / np.pi


def _kron(z: np.ndarray, kept: int) -> np.ndarray:
    """Z of the first conductors where the voltages of the others are zero."""
    if kept == len(z):
        return z
    return z[:kept, :kept] - z[:kept, kept:] @ np.linalg.solve(z[kept:, kept:], z[kept:, :kept])


def _overhead(conductors: list[Conductor], x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Capacitance (n, n) [F/m] of wires and their images."""
    dx, radius = x[:, None] - x, np.array([c.cap_radius for c in conductors])
    apart = np.hypot(dx, h[:, None] - h)
    np.fill_diagonal(apart, radius)
    p = np.log(np.hypot(dx, h[:, None] + h) / apart) / (2 * np.pi * E0)
    return np.asarray(np.linalg.inv(p))


def _cables(conductors: list[Conductor]) -> np.ndarray:
    """Capacitance (n, n) [F/m] of shielded cables: each against its own strands."""
    layers = [np.log(c.insulation[0] / c.insulation[1]) if c.strands else np.inf for c in conductors]
    return np.diag([2 * np.pi * E0 * c.eps_r / layer for c, layer in zip(conductors, layers, strict=True)])
