# An engineer of a utility: a cable net and a meter of one's own, checked, solved, and played by rule and plan.
set -euo pipefail

cat > cable.m <<'MATPOWER'
function mpc = cable
mpc.version = '2';
mpc.baseMVA = 1;
mpc.bus = [  % bus type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin
  1 3 0    0    0 0 1 1 0 20 1 1.05 0.95;
  2 1 0.30 0.10 0 0 1 1 0 20 1 1.05 0.95;
  3 1 0.45 0.15 0 0 1 1 0 20 1 1.05 0.95;
  4 1 0.25 0.08 0 0 1 1 0 20 1 1.05 0.95;
  5 1 0.60 0.20 0 0 1 1 0 20 1 1.05 0.95;
  6 1 0.35 0.12 0 0 1 1 0 20 1 1.05 0.95;
  7 1 0.50 0.16 0 0 1 1 0 20 1 1.05 0.95;
  8 1 0.40 0.13 0 0 1 1 0 20 1 1.05 0.95;
];
mpc.gen = [  % bus Pg Qg Qmax Qmin Vg mBase status Pmax Pmin
  1 0 0 10 -10 1 1 1 10 0;
];
mpc.branch = [  % from to r x b rateA rateB rateC ratio angle status
  1 2 0.0010 0.0006 0.035 6 0 0 0 0 1;
  2 3 0.0014 0.0009 0.050 5 0 0 0 0 1;
  3 4 0.0012 0.0007 0.042 4 0 0 0 0 1;
  4 5 0.0018 0.0011 0.063 4 0 0 0 0 1;
  3 6 0.0022 0.0009 0.038 3 0 0 0 0 1;
  6 7 0.0025 0.0010 0.043 3 0 0 0 0 1;
  7 8 0.0016 0.0007 0.028 3 0 0 0 0 1;
];
MATPOWER
powerzoo-jax check cable.m
powerzoo-jax pf cable.m --n-1

python - <<'PYTHON'
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

start, zone = datetime(2022, 12, 31, 23, tzinfo=UTC), ZoneInfo("Europe/Berlin")
quarters = [(start + timedelta(minutes=15 * i)).astimezone(zone) for i in range(365 * 96)]
rows = [f"{t:%d.%m.%Y %H:%M};{180 + 160 * (7 <= t.hour < 21) + 4 * (t.day % 7)},5" for t in quarters]
del rows[5000:5020]  # five hours without a row
Path("meter.csv").write_text("\n".join(["Zähler 17;", "Zeit;Energie [kWh]", *rows]), encoding="utf-8")
PYTHON

cat > own.py <<'PYTHON'
import powerzoo_jax as pz
from powerzoo_jax.data import read_csv
from powerzoo_jax.oracle import evaluate_baseline

names = {"Zeit": "time", "Energie [kWh]": "load_kwh"}
meter = read_csv("meter.csv", columns=names, zone="Europe/Berlin", fill="interpolate")
print(len(meter.repaired), "quarters filled")

battery = pz.make("battery_arbitrage", case="cable.m", data_source=meter, split="test")
ends = [evaluate_baseline(battery, name).mean_reward for name in ("rule", "oracle")]
causal = evaluate_baseline(battery, "causal", ends=ends)
print(f"battery_arbitrage: rule {ends[0]:.2f} $, plan {ends[1]:.2f} $ a day, causal planner's gain {causal.gain:.3f}")

loads = pz.make("dso", case="cable.m", data_source=meter, split="test")
rule = evaluate_baseline(loads, "rule", n_episodes=16)
print(f"dso: rule {rule.mean_reward:.3f}, lowest voltage {rule.metrics['min_voltage_pu']:.4f} pu")
PYTHON
python own.py
powerzoo-jax evaluate battery_arbitrage --keyword case=cable.m --keyword battery_bus_ids=[5,8] --keyword battery_power_mw=[0.3,0.2]
