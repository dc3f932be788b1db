"""Seeds as Gymnasium takes them, checked before anything is drawn from them."""

from __future__ import annotations

import operator


def checked_seed(seed: int) -> int:
    """The seed as a Python integer, from any integer type.

    Raises ValueError for a negative one and TypeError for what is no integer, both in the words of Gymnasium's own
    error.
    """
    try:
        value = operator.index(seed)
    except TypeError as err:
        raise TypeError(f"Seed must be a python integer, actual type: {type(seed)}") from err
    if value < 0:
        raise ValueError(f"Seed must be greater or equal to zero, actual value: {value}")
    return value
