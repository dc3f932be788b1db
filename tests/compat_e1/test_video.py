"""Gymnasium's RecordVideo: a film of an episode, read back frame by frame."""

from __future__ import annotations

import gymnasium
import numpy as np
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from gymnasium.wrappers import RecordVideo
from moviepy import VideoFileClip

STEPS = 4
LOSSY = 4.0  # grey levels of 255 that compression changes on average


@pytest.mark.parametrize("task", ["BatteryArbitrage", "ComparisonTSOCentralized"])
def test_a_film_holds_every_frame_of_its_episode(task, tmp_path):
    plain = gymnasium.make(f"PowerZooJax/{task}-v0", render_mode="rgb_array", max_steps=STEPS)
    env = RecordVideo(plain, str(tmp_path / "film"), episode_trigger=lambda episode: True, disable_logger=True)
    env.reset(seed=3)
    shown, ended = [plain.render()], False
    while not ended:
        *_, terminated, truncated, _ = env.step(np.ones(env.action_space.shape, np.float32))
        shown.append(plain.render())
        ended = terminated or truncated
    env.close()
    (film,) = tmp_path.glob("film/*.mp4")
    with VideoFileClip(str(film)) as clip:
        assert tuple(clip.size) == (800, 600) and clip.fps == plain.metadata["render_fps"]
        frames = list(clip.iter_frames())
    assert len(frames) == len(shown) == STEPS + 1
    for frame, image in zip(frames, shown, strict=True):
        assert np.abs(frame.astype(float) - image).mean() < LOSSY
    # the film is not one picture repeated: its last frame is nearer to the last picture than to the first
    near, far = (np.abs(frames[-1].astype(float) - image).mean() for image in (shown[-1], shown[0]))
    assert near < far
