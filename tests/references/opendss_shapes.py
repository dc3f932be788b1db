"""Small feeders of our own making whose loads follow load shapes, shared with the recorder."""

from __future__ import annotations

# text files that the scripts name
FILES = {
    "half_hours.csv": "0.3\n0.5\n0.9\n1.2\n",
    "table.csv": "hour, homes, shops\n1, 0.4, 0.1\n2, 0.8, 0.6\n3, 0.2, 0.9\n",
    "deep/pairs.txt": "0.7 0.1\n0.2 0.3\n0.6 0.2\n",
    "deep/shapes.dss": "New LoadShape.pairs npts=3 interval=1 pqcsvfile=pairs.txt\n",
}
LINES = "New Circuit.small basekv=12.47 bus1=head\nNew Line.a bus1=head bus2=end length=0.1\n"
WIDE = "kv=7.2 phases=1 vminpu=0.5 vmaxpu=1.5"  # constant power at any voltage that occurs


def loads(*rows: str) -> str:
    return "".join(f"New Load.d{k} bus1=end.{k % 3 + 1} {WIDE} {row}\n" for k, row in enumerate(rows))


# name -> script, mode of the solution, its step [h]
SHAPES: dict[str, tuple[str, str, float]] = {
    "daily": (
        LINES + "New LoadShape.homes npts=4 interval=1 mult=(0.2 0.4 1.0 0.7)\n"
        + loads("kw=40 kvar=10 daily=homes", "kw=30 daily=homes", "kw=20 kvar=4"),
        "daily", 1.0,
    ),
    "steps of two shapes": (
        LINES + "New LoadShape.slow 3 2.0 (0.5 1.5 1)\nNew LoadShape.fast npts=4 minterval=30 csvfile=half_hours.csv\n"
        + loads("kw=40 daily=slow", "kw=30 daily=fast"),
        "daily", 0.5,
    ),
    "columns of a file": (
        LINES + "New LoadShape.homes npts=3 mult=(file=table.csv, column=2, header=yes)\n"
        "New LoadShape.shops npts=3 pmult=[File=table.csv col=3 header=yes] action=normalize\n"
        + loads("kw=40 yearly=homes", "kw=30 kvar=10 yearly=shops"),
        "yearly", 1.0,
    ),
    "a file of another folder": (
        LINES + "Redirect deep/shapes.dss\n" + loads("kw=40 yearly=pairs", "kw=10"),
        "yearly", 1.0,
    ),
    "from the hour on": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1) interpolation=edge\n"
        "New LoadShape.b npts=6 interval=0.5 mult=(1 2 3 4 5 6)\n" + loads("kw=40 daily=a", "kw=1 daily=b"),
        "daily", 0.5,
    ),
    "duty falls back to daily": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\nNew LoadShape.b npts=2 interval=1 mult=(0.5 2)\n"
        + loads("kw=40 daily=a", "kw=30 duty=b daily=a", "kw=5 yearly=a"),
        "duty", 1.0,
    ),
    "a year without a shape is that of the day": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\n"
        + loads("kw=40 daily=a", "kw=30 yearly=a", "kw=5"),
        "yearly", 1.0,
    ),
    "status and multiplier by day": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\nSet LoadMult=1.5\n"
        + loads("kw=40 daily=a", "kw=30 daily=a status=fixed", "kw=20 daily=a status=exempt"),
        "daily", 1.0,
    ),
    "status and multiplier by year": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\nSet LoadMult=1.5\n"
        + loads("kw=40 yearly=a", "kw=30 yearly=a status=fixed", "kw=20 yearly=a status=exempt"),
        "yearly", 1.0,
    ),
    "more values than points": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1 9 9)\n" + loads("kw=40 daily=a"),
        "daily", 1.0,
    ),
    "a file of fewer rows than points": (
        LINES + "New LoadShape.a npts=9 interval=1 csvfile=half_hours.csv\n"
        "New LoadShape.b npts=9 interval=1 mult=(file=half_hours.csv)\n" + loads("kw=40 daily=a", "kw=3 daily=b"),
        "daily", 1.0,
    ),
    "a year without a shape after two days": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\nNew LoadShape.b npts=2 interval=1 mult=(0.5 2)\n"
        + loads("kw=40 daily=a\n~ daily=b", "kw=30 yearly=b daily=a", "kw=7 daily=b yearly=a"),
        "yearly", 1.0,
    ),
    "normalized after an edit": (
        LINES + "New LoadShape.a npts=3 sinterval=900 mult=(2 6 -8)\n~ action=norm\nLoadShape.a.npts=2\n"
        + loads("kw=40 daily=a", "kw=10"),
        "daily", 0.25,
    ),
    "copied load": (
        LINES + "New LoadShape.a npts=3 interval=1 mult=(0.2 0.6 1)\n" + loads("kw=40 kvar=3 daily=a")
        + "New Load.copy like=d0 bus1=end.2 kw=15\nBatchEdit LoadShape..* interval=0.5 useactual=no\n",
        "daily", 0.5,
    ),
}  # fmt: skip
STEPS = 9  # of the engine's solution, more than any shape has: they repeat
