"""Current of a row as a function of its voltage: ZIP loads, generators, and taps away from their base position.

i = conj(S / v) = (p h_p - j q h_q) v with h the admittance per unit of power: with s = |v|^2,
h = P0 / s + I0 / |v| + Z0 where the ZIP law holds, I1 / |v| + Z1 below that range, and constant outside of both.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from powerzoo_jax.cases.threephase.case import PhaseLoadTable

PHASES = 3.0  # powers are per unit on the three-phase base, currents on a third of it
V_BOUND = 1.5 * np.sqrt(3)  # [pu] no feeder runs above, also between two phases
CLEAR = (0.5, 1.5)  # [pu] generators hold their power in this range of voltage
WIDE = (1e-6, 1e6)  # a range that nothing leaves


@struct.dataclass(kw_only=True)
class RowLaw:
    """Coefficients of a rows; the leading axis of length 2 is (active, reactive) power.

    power, current, impedance:    (2, a)  P0, I0, Z0
    low_current, low_impedance:   (2, a)  I1, Z1
    s_low, s_min, s_max:          (a,)    [pu] squares of the voltages where the pieces meet
    """

    power: Array
    current: Array
    impedance: Array
    low_current: Array
    low_impedance: Array
    s_low: Array
    s_min: Array
    s_max: Array


class ZipLaw:
    """The law as the iteration of `chord` asks for it."""

    power_per_current = float(V_BOUND / PHASES)

    def current(self, law: RowLaw, e: Array, f: Array, p: Array, q: Array) -> tuple[Array, Array]:
        """Real and imaginary part of the injected current, shaped as e, f, p and q (..., a)."""
        s = jnp.clip(e * e + f * f, law.s_low, law.s_max)
        root = lax.rsqrt(s)
        inverse = root * root
        below = s < law.s_min

        def admittance(k: int) -> Array:
            low = law.low_current[k] * root + law.low_impedance[k]
            return jnp.where(below, low, law.power[k] * inverse + law.current[k] * root + law.impedance[k])

        g, b = p * admittance(0), q * admittance(1)
        return g * e + b * f, g * f - b * e


ZIP = ZipLaw()


def load_law(load: PhaseLoadTable, v_rated: np.ndarray) -> dict[str, Any]:
    """Fields of the `RowLaw` of load rows whose rated voltage is `v_rated` (D,) [pu], in float64 on the host.

    The current below `v_min_pu` runs linearly to that of the impedance which draws the nominal power at the rated
    voltage, reached at `v_low_pu`.
    """
    z, i = np.stack([load.z_p, load.z_q]), np.stack([load.i_p, load.i_q])
    power, current, impedance = PHASES * (1 - z - i), PHASES * i / v_rated, PHASES * z / v_rated**2
    low, least, most = load.v_low_pu * v_rated, load.v_min_pu * v_rated, load.v_max_pu * v_rated
    at_low, at_least = PHASES / v_rated**2 * low, power / least + current + impedance * least
    span = least - low
    slope = np.where(span > 0, (at_least - at_low) / np.where(span > 0, span, 1.0), 0.0)
    return {
        "power": power,
        "current": current,
        "impedance": impedance,
        "low_current": at_low - slope * low,
        "low_impedance": slope,
        "s_low": low**2,
        "s_min": least**2,
        "s_max": most**2,
    }


def generator_law(v_rated: np.ndarray) -> dict[str, Any]:
    """The same of generators and storage, which hold their power whatever the voltage."""
    low, high = ((limit * v_rated) ** 2 for limit in CLEAR)
    return _plain(v_rated.size, "power", PHASES) | {"s_low": low, "s_min": low, "s_max": high}


def proportional_law(n: int) -> dict[str, Any]:
    """The same of what a moved tap adds: its `p` times the measured quantity itself."""
    low, high = (np.full(n, limit) for limit in WIDE)
    return _plain(n, "impedance", 1.0) | {"s_low": low, "s_min": low, "s_max": high}


def _plain(n: int, term: str, value: float) -> dict[str, Any]:
    names = ("power", "current", "impedance", "low_current", "low_impedance")
    return {name: np.full((2, n), value if name == term else 0.0) for name in names}
