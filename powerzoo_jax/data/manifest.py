"""Manifest of the bundled data: signals, units, licences and clocks of each data set."""

from __future__ import annotations

from powerzoo_jax.base.errors import unknown
from powerzoo_jax.data.series import EVENTS, DatasetInfo, Signal

CURRENCY_NOTE = "EUR and USD are both read as $, one to one: rewards of different price sets are not comparable."


def _simbench_signals() -> tuple[Signal, ...]:
    lv = ("lv_rural1", "lv_rural2", "lv_rural3", "lv_semiurb4", "lv_semiurb5", "lv_urban6")
    mv = ("mv_rural", "mv_semiurb", "mv_urban", "mv_comm")
    active = [Signal(f"load.{c}_pu", f"{c}_pload", "pu") for c in (*lv, *mv, "mv_add1", "mv_add2")]
    reactive = [Signal(f"load_reactive.{c}_pu", f"{c}_qload", "pu") for c in mv]
    solar = [Signal(f"solar.{c.lower()}_pu", c, "pu") for c in ("PV1", "PV3", "PV5")]
    wind = [Signal(f"wind.{c.lower()}_pu", c, "pu") for c in ("WP4", "WP7", "WP10")]
    return (*active, *reactive, *solar, *wind)


FR_DEMAND_REFERENCE_MW = 95_400.0  # its largest value in the three years
GB_TYPES = {
    "solar": "solar",
    "wind_on": "wind_onshore",
    "wind_off": "wind_offshore",
    "nuclear": "nuclear",
    "gas": "gas",
    "coal": "coal",
    "biomass": "biomass",
    "hydro": "hydro",
    "pumped": "pumped_storage",
}
TMY_SITES = ("tampa", "greensboro", "buffalo")


def _gb_signals() -> tuple[Signal, ...]:
    # metered output, before curtailment is added back and without embedded units: not what was available
    metered = [Signal(f"generation.{name}_metered_mw", f"{column}_mw", "MW") for column, name in GB_TYPES.items()]
    installed = [Signal(f"capacity.{name}_mw", f"{column}_installed_mw", "MW") for column, name in GB_TYPES.items()]
    return (*metered, Signal("generation.total_mw", "generation_total_mw", "MW"), *installed)


def _tmy_signals() -> tuple[Signal, ...]:
    quantities = {
        "temperature_c": "degC",
        "ghi_w_per_m2": "W/m2",
        "dni_w_per_m2": "W/m2",
        "wind_m_per_s": "m/s",
    }
    return tuple(Signal(f"weather.{s}_{q}", f"{s}_{q}", unit) for s in TMY_SITES for q, unit in quantities.items())


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo(
            name="simbench_2016",
            title="SimBench load, solar and wind profiles, Germany 2016",
            licence="ODbL-1.0",
            step_minutes=15,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=_simbench_signals(),
            default="load.mv_semiurb_pu",
            sha256="47f1f57e8135f2c429174586e076530449c66adf26b5f1dea90d3d9bc502670a",
            region="DE",
            scaling_minutes=30,  # the step of the tasks: the largest load of a feeder is then its nominal one
        ),
        DatasetInfo(
            name="de_smard_2018",
            title="Day-ahead price, Germany and Luxembourg 2018 (with Austria to 30 September)",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=(Signal("price.day_ahead_per_mwh", "price_eur_per_mwh", "EUR/MWh"),),
            default="price.day_ahead_per_mwh",
            sha256="b1550be484c7e06f497aa983f77937260103c025fbd17de866e0ef859cc39e5f",
            currency_note=CURRENCY_NOTE,
            region="DE",
        ),
        DatasetInfo(
            name="ercot_dam_2021_2022",
            title="ERCOT day-ahead hub prices 2021-2022",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=-360,
            civil_zone="America/Chicago",
            signals=tuple(
                Signal(f"price.day_ahead_{hub.lower()}_per_mwh", hub, "USD/MWh")
                for hub in ("HB_HOUSTON", "HB_NORTH", "HB_SOUTH", "HB_WEST")
            ),
            default="price.day_ahead_hb_houston_per_mwh",
            sha256="b0a844bce34c322d9e117a88fee7bb48992af27508b3521aeddea979f454e9b9",
            currency_note=CURRENCY_NOTE,
            region="ERCOT",
        ),
        DatasetInfo(
            name="fr_2017_2019",
            title="Demand and generation, France 2017-2019 (demand in steps of 100 MW, perhaps the day-ahead forecast)",
            licence="Licence-Ouverte-2.0 AND ENTSO-E",
            step_minutes=60,
            offset_minutes=60,
            civil_zone="Europe/Paris",
            signals=(
                Signal("load.actual_mw", "demand_mw", "MW", FR_DEMAND_REFERENCE_MW),
                Signal("solar.available_mw", "solar_mw", "MW"),
                Signal("wind.available_mw", "wind_mw", "MW"),
                Signal("generation.nuclear_mw", "nuclear_mw", "MW"),
                Signal("generation.gas_mw", "gas_mw", "MW"),
            ),
            default="load.actual_mw",
            sha256="f72536707875356b5ad10383c2640f7ea8f6efeeba306351e4a079aa4c9c00e9",
            region="FR",
        ),
        DatasetInfo(
            name="gb_2018_2020",
            title="Metered generation, Great Britain 2018-2020 (no imports, no embedded units: not the demand)",
            licence="ENTSO-E AND BMRS",
            step_minutes=30,
            offset_minutes=0,
            civil_zone="Europe/London",
            signals=_gb_signals(),
            default="generation.total_mw",
            sha256="f3b6b0b0b4460bb654378f73ad92c7e0371f9a17fb7a2a756f2045c89106ac29",
            region="GB",
        ),
        DatasetInfo(
            name="de_2018",
            title="Generation, Germany 2018",
            licence="ENTSO-E",
            step_minutes=15,
            offset_minutes=60,
            civil_zone="Europe/Berlin",
            signals=(
                Signal("solar.available_mw", "solar_mw", "MW"),
                Signal("wind.onshore_available_mw", "wind_on_mw", "MW"),
                Signal("wind.offshore_available_mw", "wind_off_mw", "MW"),
                Signal("generation.total_mw", "generation_total_mw", "MW"),
            ),
            default="generation.total_mw",
            sha256="dd80b4ddf257518a31684c1eba974a1152050272bc8f8abd320ada359ca87000",
            region="DE",
        ),
        DatasetInfo(
            name="acn_sessions",
            title="Charging sessions at Caltech and JPL, 2019-2021",
            licence="CC-BY-4.0",
            step_minutes=EVENTS,
            offset_minutes=-480,
            civil_zone="America/Los_Angeles",
            signals=(
                Signal("ev.site_code", "site", "code"),
                Signal("ev.station_code", "station", "code"),
                Signal("ev.stay_min", "stay_min", "min"),
                Signal("ev.estimated_stay_min", "estimated_stay_min", "min"),
                Signal("ev.delivered_kwh", "delivered_kwh", "kWh"),
                Signal("ev.requested_kwh", "requested_kwh", "kWh"),
                Signal("ev.claimed_code", "claimed", "code"),
            ),
            default="ev.delivered_kwh",
            sha256="f1b0e8dc6fee869d30bbfcd13c098c0d60acf6bfaa29614d443fae571a3c4340",
            region="CAISO",
        ),
        DatasetInfo(
            name="caiso_moer",
            title="Marginal emission rate, California (SCE), May 2019 to August 2021",
            licence="CC-BY-4.0",
            step_minutes=30,
            offset_minutes=-480,
            civil_zone="America/Los_Angeles",
            signals=(Signal("carbon.marginal_kg_per_kwh", "moer_kg_per_kwh", "kg/kWh"),),
            default="carbon.marginal_kg_per_kwh",
            sha256="eb692f8d7766b3a7576819b541f5dbcfd0001fe66523d05fd55b828358e5e783",
            region="CAISO",
        ),
        DatasetInfo(
            name="tmy",
            title="Typical meteorological years of Tampa, Greensboro and Buffalo (nominal year 2018)",
            licence="NREL-TMY3",
            step_minutes=60,
            offset_minutes=-300,
            civil_zone="Etc/GMT+5",
            signals=_tmy_signals(),
            default="weather.greensboro_temperature_c",
            sha256="404118338016fab9559c5b506343d60c2bdc229099f991834dbaae7e5f2b2390",
            region="US",
        ),
        DatasetInfo(
            name="activsg200_load",
            title="Area loads of the synthetic grid ACTIVSg200, 2017",
            licence="CC-BY-4.0",
            step_minutes=60,
            offset_minutes=-360,
            civil_zone="Etc/GMT+6",
            signals=tuple(Signal(f"load.area_{area}_mw", f"area_{area}_mw", "MW") for area in range(2, 8)),
            default="load.area_2_mw",
            sha256="3984493e56b8bac30ed9473a15112b88f9a1bfaa252804beb5b5c3af10d59042",
            region="ACTIVSg200",
        ),
    )
}


def list_datasets() -> tuple[str, ...]:
    """Names of the bundled data sets."""
    return tuple(sorted(DATASETS))


def get_info(name: str) -> DatasetInfo:
    """Manifest entry of a data set; raises ValueError for an unknown name."""
    if name not in DATASETS:
        raise ValueError(unknown("data set", name, DATASETS))
    return DATASETS[name]
