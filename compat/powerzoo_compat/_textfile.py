"""Settings files: TOML, and YAML where PyYAML is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from powerzoo_jax.base.errors import SettingsError, missing_extra, unknown
from powerzoo_jax.base.textfile import MAX_SETTINGS_MB, read_text, read_toml, require_file, shallow

YAML, TOML = (".yaml", ".yml"), ".toml"


def read_file(path: str | Path) -> dict[str, Any]:
    """Content of a .toml, .yaml or .yml file.

    Raises ValueError for another ending and for a file that cannot be read as such (SettingsError), ImportError
    without PyYAML, FileNotFoundError (DataMissing).
    """
    path = Path(path)
    if path.suffix == TOML:
        return read_toml(path)
    if path.suffix not in YAML:
        raise ValueError(unknown("ending of a settings file", path.suffix, (TOML, *YAML)))
    try:
        import yaml
    except ImportError as err:
        raise ImportError(f"{missing_extra('A YAML file', 'PyYAML', 'dropin')} TOML needs nothing more.") from err
    text = read_text(require_file(path, "settings file"), SettingsError, max_mb=MAX_SETTINGS_MB)
    try:
        content = shallow(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError) as err:
        raise SettingsError(f"settings file {path}: {' '.join(str(err).split())}. Correct that line.") from err
    if not isinstance(content, dict):
        raise SettingsError(f"{path} must hold keys and values, got {type(content).__name__}.")
    return content
