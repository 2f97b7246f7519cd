"""Simulated SSDs: one config, or a whole experiment. Results are dicts and lists.

A config is the name of one that comes with the simulator (see configs()), the path of a TOML file,
or a dict of its sections. `settings` changes single fields by their path, as in {"drive.op": 0.28}.
The same config and seed give the same results.
"""

import json
import os
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Union

from . import _zonal

Config = Union[str, "os.PathLike[str]", Mapping[str, Any]]
Progress = Callable[[int, int], Any]


def configs() -> Dict[str, str]:
    """The configs that come with the simulator, by name, with what each is."""
    return dict(_zonal.configs()[0])


def experiments() -> Dict[str, str]:
    """The experiments, by name, with what each asks."""
    return dict(_zonal.configs()[1])


def config(
    config: Config = "small",
    *,
    settings: Optional[Mapping[str, Any]] = None,
    seed: Optional[int] = None,
) -> Dict[str, Any]:
    """A config as a dict, with every default. Sizes are bytes."""
    return json.loads(_zonal.config_text(*_written(config), _settings(settings, seed)))


def run(
    config: Config,
    *,
    settings: Optional[Mapping[str, Any]] = None,
    seed: Optional[int] = None,
    progress: Optional[Progress] = None,
) -> Dict[str, Any]:
    """Runs one config and returns its results, as `zonal sim run --json` prints them, with
    `samples`: a list of dicts.

    `progress(done, total)` is called as the simulation goes on. If it raises, or the program is
    interrupted, the simulation ends.
    """
    text, is_json = _written(config)
    result = json.loads(_zonal.run_config(text, is_json, _settings(settings, seed), progress))
    if isinstance(result["samples"], dict):
        result["samples"] = _rows(result["samples"])
    return result


def experiment(
    name: str,
    config: Union[None, str, "os.PathLike[str]"] = None,
    *,
    settings: Optional[Mapping[str, Any]] = None,
    seed: Optional[int] = None,
    quick: bool = False,
    threads: Optional[int] = None,
    progress: Optional[Progress] = None,
) -> Dict[str, Any]:
    """Runs an experiment, one of experiments(), with the TOML file `config` or its own config.

    Of the result, `tables` has a list of dicts for each name of a table, and `charts` the published
    charts beside ours. `quick` runs a smaller one. `threads` is how many run at once: by default
    one for each processor.
    """
    text = None
    if config is not None:
        with open(config, encoding="utf-8") as file:
            text = file.read()
    how = {"settings": _settings(settings, None), "quick": quick, "seed": seed, "threads": threads}
    result = json.loads(_zonal.run_experiment(name, text, how, progress))
    result["tables"] = {table["name"]: _rows(table) for table in result["tables"]}
    return result


def _written(config: Config) -> Tuple[str, bool]:
    """The text of a config, and whether it is JSON rather than TOML."""
    if isinstance(config, Mapping):
        return json.dumps(config), True
    name = os.fspath(config)
    if not os.path.exists(name) and name in configs():
        return _zonal.preset(name), False
    with open(name, encoding="utf-8") as file:
        return file.read(), False


def _settings(settings: Optional[Mapping[str, Any]], seed: Optional[int]):
    """Settings as pairs of a path and a value in the words of TOML."""
    pairs = [(path, _word(value)) for path, value in (settings or {}).items()]
    return pairs if seed is None else [*pairs, ("seed", str(seed))]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _rows(table: Mapping[str, Any]):
    return [dict(zip(table["columns"], row)) for row in table["rows"]]
