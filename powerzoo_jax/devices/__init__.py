"""Devices: storage so far; the sign rule stands in `protocol`."""

from powerzoo_jax.devices.fleet import at_devices as at_devices
from powerzoo_jax.devices.fleet import bus_injection as bus_injection
from powerzoo_jax.devices.fleet import placement as placement
from powerzoo_jax.devices.protocol import Delivery as Delivery
from powerzoo_jax.devices.protocol import Device as Device
from powerzoo_jax.devices.protocol import idle as idle
from powerzoo_jax.devices.storage import StorageParams as StorageParams
from powerzoo_jax.devices.storage import StorageState as StorageState
from powerzoo_jax.devices.storage import storage_params as storage_params
