"""Names that other libraries of reinforcement learning and of power systems give to the same thing.

They are looked up in messages alone: a name that is not known is answered with ours, and nothing accepts it.
"""

from __future__ import annotations

from collections.abc import Iterable

# of one meaning each, in lower case with underscores; what a message proposes is whichever of a row is valid there, and
# of several rows with the same word the first that has one
SYNONYMS: tuple[tuple[str, ...], ...] = tuple(
    tuple(row.split())
    for row in (
        # settings of learners: Stable-Baselines3, CleanRL, PureJaxRL, RLlib, Spinning Up
        "lr learning_rate step_size policy_lr pi_lr actor_lr q_lr",
        "lr_end anneal_lr lr_schedule lr_decay learning_rate_schedule",
        "gamma discount discount_factor",
        "lanes n_envs num_envs n_env envs num_workers num_env_runners num_parallel_envs",
        "steps n_steps num_steps rollout_length rollout_fragment_length unroll_length",
        "total_steps total_timesteps timesteps num_timesteps n_timesteps total_env_steps max_timesteps",
        "updates n_updates num_updates iterations n_iterations",
        "epochs n_epochs num_epochs update_epochs ppo_epochs num_sgd_iter",
        "batch batch_size",
        "minibatches num_minibatches n_minibatches minibatch_size batch_size sgd_minibatch_size nminibatches",
        "gae_lambda lam lambda lambda_ gae_lam",
        "clip clip_range clip_coef clip_eps clip_ratio clip_param eps_clip ppo_clip",
        "entropy ent_coef entropy_coef entropy_coeff entropy_cost ent_weight",
        "temperature ent_coef alpha init_temperature",
        "value_weight vf_coef value_coef vf_loss_coeff value_cost critic_coef",
        "max_grad_norm grad_clip clip_grad_norm max_gradient_norm",
        "kl_limit target_kl kl_target max_kl",
        "widths net_arch hidden_sizes hidden_size hidden_dim hidden_dims layer_sizes hiddens fcnet_hiddens",
        "activation activation_fn",
        "memory lstm_hidden_size gru_hidden_dim hidden_state_size",
        "log_std log_std_init init_log_std",
        "shared_torso share_features_extractor vf_share_layers",
        "normalise_reward normalize_reward norm_reward reward_normalization normalize_env",
        "running_obs normalize_obs norm_obs normalise_obs obs_normalization normalize_observation",
        "capacity buffer_size replay_size replay_buffer_size memory_size",
        "warmup learning_starts start_steps random_steps",
        "gradients gradient_steps n_gradient_steps updates_per_step utd_ratio",
        "tau polyak target_smoothing_coefficient target_update_rate",
        "history frame_stack n_stack num_stack stack_size",
        "task env env_id env_name environment",
        "cost_weights penalty_weights penalty_coef",
        "budget_share cost_limit safety_margin",
        # learners
        "ppo_gru recurrent_ppo ppo_lstm rppo ppo_rnn",
        "ppo_lagrangian ppo_lag ppolag cpo safe_ppo",
        "clone bc behaviour_cloning behavior_cloning imitation",
        "apg shac analytic_policy_gradient bptt",
        "es evolution openai_es cma_es",
        # policies to compare with
        "oracle best optimal optimum upper_bound perfect perfect_foresight foresight",
        "causal mpc planner rolling_horizon receding_horizon",
        "rule heuristic expert rule_based baseline",
        "no_control idle noop do_nothing nothing zero none no_op",
        "trivial constant fixed",
        "random uniform",
        # splits
        "train training",
        "val validation valid dev eval",
        "test testing holdout evaluation",
        # keywords of tasks
        "max_steps horizon episode_length max_episode_steps episode_steps max_ep_len ep_len",
        "delta_t_minutes dt timestep time_step resolution step_minutes dt_hours dt_minutes",
        "case grid network net feeder",
        "battery_capacity_mwh capacity storage_capacity energy_capacity e_max",
        "battery_power_mw power max_power p_max p_max_mw",
        "battery_bus_ids bus buses location battery_location battery_buses",
        "eta_roundtrip efficiency eta roundtrip_efficiency",
        "degradation_per_mwh degradation_cost wear wear_cost ageing_cost",
        "initial_soc soc soc_init init_soc soc0",
        "reward_scale reward_weight reward_factor",
        "data_source data dataset data_path csv",
        "load_set load load_data demand",
        "price_set price prices price_data tariff",
        "obs_mode observation observation_mode obs_type obs",
        "v_min v_min_pu vmin min_voltage voltage_min",
        "v_max v_max_pu vmax max_voltage voltage_max",
        "voll value_of_lost_load",
        "constraint_tightness tightness difficulty",
    )
)


def synonym(name: str, options: Iterable[str]) -> str | None:
    """Valid name that means the same as `name`, case and hyphens aside; None where none is known."""
    word = name.lower().replace("-", "_")
    valid = {option.lower(): option for option in options}
    found = (valid[same] for row in SYNONYMS if word in row for same in row if same != word and same in valid)
    return next(found, None)
