"""Files of the drop-in that cannot be read are named, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from powerzoo import benchmarks, rl

from powerzoo_jax.base.errors import DataError, DataMissing, PowerZooError, SettingsError


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def archive(path: Path) -> Path:
    np.savez(path, x=np.zeros(3))
    return path


# what the file is -> (how it is read, the error, words of the message)
BROKEN: dict[str, tuple[Callable[[Path], Any], type[PowerZooError], str]] = {
    "settings in Latin-1": (
        lambda d: rl.RLConfig.from_yaml(put(d / "run.yaml", b"task: M\xfcller\n")),
        SettingsError,
        r"run\.yaml line 1 is not UTF-8",
    ),
    "settings that are no YAML": (
        lambda d: rl.RLConfig.from_yaml(put(d / "run.yaml", b"a: [1\nb: 2\n")),
        SettingsError,
        r"settings file .*run\.yaml: .*line 2.*Correct that line",
    ),
    "settings that are no TOML": (
        lambda d: rl.RLConfig.from_yaml(put(d / "run.toml", b"a = = 1\n")),
        SettingsError,
        r"settings file .*run\.toml: .*line 1.*Correct that line",
    ),
    "no settings": (
        lambda d: rl.RLConfig.from_yaml(d / "run.yaml"),
        DataMissing,
        r"There is no settings file .*run\.yaml",
    ),
    "data set that is cut off": (
        lambda d: benchmarks.DatasetLoader(put(d / "a.npz", archive(d / "b.npz").read_bytes()[:99])),
        DataError,
        r"a\.npz is damaged",
    ),
    "archive of another kind": (
        lambda d: benchmarks.DatasetLoader(archive(d / "b.npz")),
        DataError,
        r"b\.npz is not what DatasetGenerator writes: its arrays are x\.",
    ),
    "file of anchors that is cut off": (
        lambda d: (put(d / "powerzoo_jax" / "baselines.json", b'{"a"'), benchmarks.list_baselines()),
        SettingsError,
        r"baselines\.json is not JSON .*Remove it, and register the anchors again",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_one_error_tells_what_to_do_with_a(what, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read, error, words = BROKEN[what]
    with pytest.raises(error, match=words) as caught:
        read(tmp_path)
    assert "\n" not in str(caught.value)
