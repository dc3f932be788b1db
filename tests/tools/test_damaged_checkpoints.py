"""Every file of a checkpoint, damaged in every way at a seeded place: noticed by name, and survived."""

from __future__ import annotations

import pytest

from tools.damaged_checkpoints import FAULTS, files_of, make_folder, trials


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("damaged") / "checkpoint")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_any_file_is_noticed_and_survived(folder, fault):
    results = {file: result for name, file, result in trials(folder, 1, faults=(fault,))}
    assert set(results) == set(files_of(folder)) and {"digests.json", "settings/metadata"} <= set(results)
    assert set(results.values()) == {"survived"}
