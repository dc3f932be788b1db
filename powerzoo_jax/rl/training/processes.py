"""Processes of one training: joined by `jax.distributed`, each of them told when another one dies.

Every process counts a beat each second in the store of the coordinator, which is process 0, and reads those of the
others. One whose count stands still for `timeout_s` has died or lost its network: all others print which one it is and
end, because a sum over all processes that one is missing from would wait for ever. Where the coordinator itself dies,
JAX ends the others within seconds, with a message of its own that names the leader, and status 134.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax

TIMEOUT_S = 30.0  # without a beat; a network that fails for less does no harm
BEAT_S = 1.0
LOST = 3  # exit status of a process that ends because another one has died
BEATS, FOUND, DONE = "powerzoo_jax/beat/", "powerzoo_jax/lost", "done"
TOLD = "powerzoo_jax/told/"
BROKEN = ("Gloo", "NCCL", "UNAVAILABLE", "onnection", "ABORTED")  # words of an error of the network between processes


def join(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Make this process one of several, before anything asks for a device; without arguments as the scheduler says.

    coordinator:  HOST:PORT at which process 0 listens
    timeout_s:    [s] silence after which a process counts as dead, see `watch`
    """
    # this module ends the process with a sentence of its own; that of JAX is the second line of defence
    beat = max(2 * int(timeout_s), 10)
    jax.distributed.initialize(
        coordinator, processes, process, heartbeat_timeout_seconds=beat, shutdown_timeout_seconds=beat
    )


@contextmanager
def watch(timeout_s: float = TIMEOUT_S, remedy: str = "Start all processes again.") -> Iterator[None]:
    """Look after the other processes while the block runs; alone there is nobody to look after.

    An error of the block waits for the verdict: a connection that breaks is seen at once, whose it was only by its
    silence. Where a process has died, all others print its number, machine and process id, and end with status LOST.
    """
    if jax.process_count() == 1:
        yield
        return
    watcher = _Watcher(timeout_s, remedy)
    watcher.start()
    try:
        yield
    except Exception as err:
        if any(word in str(err) for word in BROKEN):
            watcher.join(timeout_s + 10 * BEAT_S)
        raise
    finally:
        watcher.leave()


class _Watcher(threading.Thread):
    """Thread that counts the beats of this process and looks at those of the others.

    seen:  process -> its last beat, and when it came
    """

    def __init__(self, timeout_s: float, remedy: str) -> None:
        super().__init__(daemon=True)
        from jax._src.distributed import global_state  # JAX has no public door to the store of its coordinator

        self.client: Any = global_state.client
        self.address = global_state.coordinator_address
        self.me, self.count = jax.process_index(), jax.process_count()
        self.timeout_s, self.remedy = timeout_s, remedy
        self.label = f"{socket.gethostname()}, process id {os.getpid()}"
        self.seen: dict[int, tuple[str, float]] = {}
        self.left = threading.Event()

    def run(self) -> None:
        """Beat and look until the block ends."""
        answered = time.monotonic()
        for beat in range(sys.maxsize):
            if self.left.wait(BEAT_S):
                return
            try:
                self._set(f"{beat} {self.label}")
                found = dict(self.client.key_value_dir_get(BEATS))
                verdict = dict(self.client.key_value_dir_get(FOUND))
            except jax.errors.JaxRuntimeError:
                if time.monotonic() - answered > self.timeout_s:
                    self._end(0, f"the coordinator at {self.address}")
                continue
            answered = time.monotonic()
            if verdict:
                self._say(next(iter(verdict.values())))
            for number in range(self.count):
                self._look(number, found.get(f"{BEATS}{number}", ""), answered)

    def _look(self, number: int, value: str, now: float) -> None:
        last, since = self.seen.get(number, ("", now))
        self.seen[number] = (value, since if value == last else now)
        if value != DONE and value == last and now - since > self.timeout_s:
            self._end(number, value.partition(" ")[2] or "never heard of")

    def _end(self, number: int, label: str) -> None:
        text = (
            f"process {number} of {self.count} ({label}) has been silent for {self.timeout_s:g} s: it has died or "
            f"lost its network. {self.remedy}"
        )
        with suppress(jax.errors.JaxRuntimeError):  # the coordinator may be the one that died
            self.client.key_value_set(f"{FOUND}/{self.me}", text, allow_overwrite=True)
        self._say(text)

    def _say(self, text: str) -> None:
        print(f"powerzoo-jax: {text}", file=sys.stderr, flush=True)
        with suppress(jax.errors.JaxRuntimeError):
            self.client.key_value_set(f"{TOLD}{self.me}", DONE, allow_overwrite=True)
            # the store ends with the coordinator, so that one goes last: all but itself and the dead one are to know
            until = time.monotonic() + self.timeout_s
            while self.me == 0 and time.monotonic() < until:
                time.sleep(BEAT_S)
                if len(self.client.key_value_dir_get(TOLD)) >= self.count - 1:
                    break
        os._exit(LOST)

    def _set(self, value: str) -> None:
        self.client.key_value_set(f"{BEATS}{self.me}", value, allow_overwrite=True)

    def leave(self) -> None:
        """Tell the others that this process ends on purpose."""
        self.left.set()
        with suppress(jax.errors.JaxRuntimeError):  # the coordinator may have left already
            self._set(DONE)
