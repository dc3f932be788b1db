# A reviewer of a paper: rows of the leaderboard trained and played again, a policy of the zoo scored, what to cite.
set -euo pipefail

powerzoo-jax --version
powerzoo-jax show gencos_bidding
powerzoo-jax leaderboard battery_arbitrage:causal --page board.md
powerzoo-jax leaderboard gencos_bidding:ippo --split demand_shift --page board.md
powerzoo-jax evaluate marl_der_arbitrage --policy zoo --json zoo.json
powerzoo-jax reference battery_arbitrage

python - <<'PYTHON'
from importlib.metadata import metadata

print(metadata("powerzoo-jax")["Description"].partition("## Citation")[2].partition("\n## ")[0])
PYTHON
