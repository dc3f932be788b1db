"""Code behind `import powerzoo`; each part imports only those above it, and the views of other dialects import all.

envs:        environments of one agent, of several and of many lanes; devices; infos, reports and pictures
wrappers:    observations, rewards and costs changed around any environment
grids:       grids, markets and tasks' simulations out of cases, devices and configs
tasks:       task classes, registry, cards, rewards, splits, Gymnasium ids
benchmarks:  policies, evaluation, scores, data sets, contract checks
rl:          settings, training, descriptions

`lazy`, `aliases` and `guard` stand beside them, for the package `powerzoo` alone.
"""
