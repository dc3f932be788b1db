"""AC-OPF within other bands of voltages."""

from tools.opf_bands import main


def test_every_bus_takes_the_band_and_a_narrower_one_costs_no_less(tmp_path):
    """The first band is that of case9, whose optimum MATPOWER prints as 5296.69 USD/h."""
    assert main(["--case", "case9", "--bands", "0.9:1.1", "0.95:1.05", "--out", str(tmp_path / "bands.tsv")]) == 0
    rows = [line.split("\t") for line in (tmp_path / "bands.tsv").read_text().splitlines()]
    own, narrow = (dict(zip(rows[0], row, strict=True)) for row in rows[1:])
    assert own["outcome"] == narrow["outcome"] == "OPTIMAL"
    assert own["cost_usd_per_h"] == "5296.69" and float(narrow["cost_usd_per_h"]) > 5296.69
    assert float(own["v_max_pu"]) > 1.05 and 0.9499 <= float(narrow["v_min_pu"]) <= float(narrow["v_max_pu"]) <= 1.0501
