"""Pytrees as one vector of words: every bit comes back, on the device and on the host."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from powerzoo_compat._packed import opened, pack, unpack


class Mixed(NamedTuple):
    rows: object
    number: object
    count: object
    flag: object
    flags: object
    bits: object
    rough: object
    nothing: object
    wide: object
    one: object


def mixed():
    """Leaves of all kinds; the last two are twice as wide as a word."""
    return Mixed(
        rows=jnp.array([[1.5, -0.0, np.nan], [np.inf, 1e-45, -3.0]], jnp.float32),
        number=jnp.float32(0.1),
        count=jnp.int32(-7),
        flag=jnp.array(True),
        flags=jnp.array([True, False]),
        bits=jnp.array([0, 2**32 - 1, 2**31], jnp.uint32),
        rough=jnp.array([0.5, -3.0, 1.0], jnp.bfloat16),
        nothing=jnp.zeros((2, 0), jnp.float32),
        wide=jnp.array([[0.1], [-1e300]], jnp.float64),
        one=jnp.float64(1 / 3),
    )


def raw(leaf):
    array = np.asarray(leaf)
    return array.dtype, array.shape, array.tobytes()


def test_every_bit_returns():
    with jax.enable_x64(True):
        given = mixed()
        packed = jax.jit(pack)(given)
        assert packed.words.dtype == jnp.int32 and packed.words.ndim == 1 and not packed.apart
        for told in (jax.jit(opened)(packed), unpack(packed.words, packed.layout)):
            assert isinstance(told, Mixed)
            for name, leaf, same in zip(Mixed._fields, given, told, strict=True):
                plain = np.asarray(same, leaf.dtype) if isinstance(same, int | float) else same
                assert raw(plain) == raw(leaf), name


def test_the_host_gets_numbers_of_python_and_arrays_that_nobody_can_change():
    with jax.enable_x64(True):
        packed = jax.jit(pack)(mixed())
        told = unpack(packed.words, packed.layout)
    assert [type(x) for x in (told.number, told.count, told.flag)] == [float, int, bool]
    assert told.count == -7 and told.flag is True
    assert not told.rows.flags.writeable and not told.bits.flags.writeable


def test_a_key_and_what_is_too_large_to_copy():
    given = {"key": jax.random.key(3), "table": jnp.arange(9.0), "soc": jnp.ones(2)}
    packed = jax.jit(pack, static_argnums=1)(given, 8)
    assert packed.apart[0].shape == (9,) and packed.words.shape == (4,)
    back = jax.jit(opened)(packed)
    assert jax.random.uniform(back["key"]) == jax.random.uniform(given["key"])
    np.testing.assert_array_equal(back["table"], given["table"])
