"""Pictures of episodes: what they show, that frames share a figure, and what happens without a library or display."""

from __future__ import annotations

import sys

import gymnasium
import matplotlib
import numpy as np
import powerzoo
import powerzoo_compat.gymnasium_view  # noqa: F401  registers PowerZooJax/...
import pytest
from gymnasium.wrappers import RenderCollection
from matplotlib import pyplot
from matplotlib.figure import Figure
from powerzoo_compat import pettingzoo_view
from powerzoo_compat.powerzoo_api.envs.picture import Curve, EpisodePicture
from powerzoo_compat.powerzoo_api.envs.render import _figure

import powerzoo_jax
from tests.compat import windows
from tests.tolerances import tolerance

TASK = "battery_arbitrage"
ORANGE, BLUE = (0xD5, 0x5E, 0x00), (0x00, 0x72, 0xB2)  # beyond a limit; directions of the flows
IDLE = np.zeros(1, np.float32)


@pytest.fixture(scope="module")
def env():
    return powerzoo.make_task_env(TASK, render_mode="rgb_array")


def count(image, colour):
    return int(np.all(image == colour, axis=-1).sum())


@pytest.mark.full
def test_an_image_has_the_size_of_a_video_frame(env):
    env.reset(seed=0)
    for _ in range(2):
        image = env.render()
        assert (image.shape, image.dtype) == ((600, 800, 3), np.uint8)
        env.step(IDLE)


@pytest.mark.full
def test_a_rim_is_orange_only_outside_the_band():
    rims = []
    for v_min in (0.9, 0.99):
        env = powerzoo.make_task_env(TASK, render_mode="rgb_array", v_min=v_min)
        env.reset(seed=0)
        rims.append(count(env.render(), ORANGE))
    assert rims[0] == 0 < rims[1]


def test_frames_of_all_episodes_share_one_figure_and_its_artists(monkeypatch):
    env, made = powerzoo.make_task_env(TASK, render_mode="rgb_array"), []
    monkeypatch.setattr(Figure, "__init__", _counted(Figure.__init__, made))
    artists = set()
    for seed in range(2):
        env.reset(seed=seed)
        for _ in range(3):
            env.render()
            axes = env._viewer._picture.figure.axes
            artists.add(tuple(id(artist) for one in axes for artist in one.get_children()))
            env.step(IDLE)
    assert len(made) == 1 and len(artists) == 1


def _counted(init, made):
    def counted(self, *args, **kwargs):
        made.append(self)
        init(self, *args, **kwargs)

    return counted


def test_a_frame_painted_over_the_kept_background_is_the_one_drawn_anew(env):
    """A scale that has grown without a new background would show old labels beside new lines."""
    env.reset(seed=3)
    for k in range(4):
        env.step(np.float32([0.2 * (-1) ** k]))
        painted = env.render()
        env._viewer._picture.figure.canvas.draw()
        np.testing.assert_array_equal(painted, np.array(env._viewer._picture.figure.canvas.buffer_rgba())[..., :3])


def test_the_figures_of_the_map_obey_the_balance_of_power(env):
    env.reset(seed=1)
    for _ in range(2):
        *_, info = env.step(np.float32([0.15]))
        read = env._host.network_readings()
        assert read["bus_voltage_pu"].min() == pytest.approx(info["v_min_actual"], abs=1e-6)
        given = info["p_slack_MW"] + read["bus_injection_mw"].sum()
        assert given == pytest.approx(info["p_loss_MW"], abs=tolerance("view", np.float32) * 10)


def test_a_rendered_episode_is_the_same_as_one_that_is_not(env):
    plain, steps = powerzoo.make_task_env(TASK), []
    for one in (env, plain):
        one.reset(seed=2)
        for k in range(3):
            steps.append(one.step(np.float32([0.05 * k]))[:2])
            if one is env:
                one.render()
    for (seen, paid), (other, given) in zip(steps[:3], steps[3:], strict=True):
        np.testing.assert_array_equal(seen, other)
        assert paid == given


def test_arrows_turn_with_the_flow_and_an_overload_is_orange():
    sim = powerzoo_jax.make("marl_opf")
    picture = EpisodePicture(_figure(), sim, [Curve("load", "MW", float)])
    one = picture.maps[""]
    flow = np.linspace(50.0, 100.0, one.on.sum())
    rate = one.network.rate_mva[one.on]
    shown = []
    for sign, share in ((1, 0.5), (-1, 0.5), (1, 1.5)):
        loading = np.where(rate > 0, share * rate, 1.0)
        tables = {"bus_injection_mw": np.zeros(5), "branch_flow_mw": sign * flow, "branch_loading_mva": loading}
        picture.update("", "", tables, [(np.arange(2.0), np.ones(2))])
        image = np.array(picture.figure.canvas.buffer_rgba())[..., :3]
        shown.append((np.stack([one.arrows.U, one.arrows.V]), count(image, ORANGE)))
        assert count(image, BLUE) > 0
    np.testing.assert_array_equal(shown[0][0], -shown[1][0])
    assert shown[0][1] == 0 < shown[2][1]


def test_gymnasiums_collection_of_frames_holds_one_for_every_step():
    """RecordVideo writes such a list with moviepy: arrays of one size, at the rate of the metadata."""
    env = RenderCollection(gymnasium.make("PowerZooJax/BatteryArbitrage-v1", render_mode="rgb_array"))
    env.reset(seed=0)
    for _ in range(2):
        env.step(IDLE)
    frames = env.render()
    assert len(frames) == 3 and {(x.shape, x.dtype.name) for x in frames} == {((600, 800, 3), "uint8")}
    assert not np.array_equal(frames[1], frames[2]) and env.metadata["render_fps"] > 0


def test_without_matplotlib_an_image_names_the_extra_and_lines_are_printed(monkeypatch, capsys):
    for name in ("matplotlib.figure", "matplotlib.pyplot", "matplotlib.backends"):
        monkeypatch.setitem(sys.modules, name, None)
    env = powerzoo.make_task_env(TASK, render_mode="rgb_array")
    env.reset(seed=0)
    with pytest.raises(ImportError, match=r"rgb_array.*powerzoo-jax\[viz\]"):
        env.render()
    powerzoo.make_task_env(TASK, render_mode="human").reset(seed=0)
    assert "step 0/48" in capsys.readouterr().out


def test_human_rendering_prints_a_line_a_step_and_opens_no_window_without_a_display(capsys):
    env = powerzoo.make_task_env(TASK, render_mode="human")
    env.reset(seed=0)
    env.step(IDLE)
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert env.render() is None and pyplot.get_fignums() == []


@pytest.fixture
def display():
    """A backend with windows, for the time of a test."""
    before = matplotlib.get_backend()
    pyplot.switch_backend("module://tests.compat.windows")
    windows.shown.clear()
    yield windows.shown
    pyplot.close("all")
    pyplot.switch_backend(before)


def test_human_rendering_fills_one_window_until_it_is_closed(display, capsys):
    env = powerzoo.make_task_env(TASK, render_mode="human")
    env.reset(seed=0)
    (number,), before = pyplot.get_fignums(), np.array(display[0].canvas.buffer_rgba())
    env.step(np.float32([0.2]))
    assert len(display) == 1 and not np.array_equal(before, display[0].canvas.buffer_rgba())
    env.close()
    env.close()
    assert number not in pyplot.get_fignums()
    capsys.readouterr()


def test_a_parallel_environment_closes_its_window(display, capsys):
    env = pettingzoo_view.parallel_env("marl_opf", render_mode="human")
    env.reset(seed=0)
    assert len(pyplot.get_fignums()) == 1
    env.close()
    assert pyplot.get_fignums() == []
    capsys.readouterr()


def test_a_display_that_cannot_be_opened_is_named(monkeypatch, capsys):
    def refuse(**size):
        raise ImportError("Cannot load backend 'TkAgg' which requires the 'tk' interactive framework")

    monkeypatch.setattr(pyplot, "figure", refuse)
    env = powerzoo.make_task_env(TASK, render_mode="human")
    with pytest.raises(RuntimeError, match=r"TkAgg.*MPLBACKEND.*rgb_array"):
        env.reset(seed=0)
    capsys.readouterr()
