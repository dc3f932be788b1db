"""The commands and the options of `Set` that the reader of OpenDSS applies, leaves out, or refuses, in OpenDSS's order.

An abbreviation means the first name that begins with it. "idle" is what asks for a solution or for output: the network
does not depend on it.
"""

from __future__ import annotations

from powerzoo_jax.cases.readers.opendss import values as v
from powerzoo_jax.cases.readers.opendss.rules import (
    IDLE,
    NO,
    SERIES,
    Rule,
    Rules,
    applied,
    fixed,
    noted,
    refused,
    table,
)

APPLY, PASS = applied(v.unquote), Rule(IDLE)
PLACES = noted("coordinates of single buses and of maps are not represented, BusCoords is")
LOOSE = refused("Remove it if the network does not depend on it, or write the elements as they are after it.")

COMMANDS: Rules = table(
    (APPLY, "new"),
    (APPLY, "edit more m ~"),
    (LOOSE, "select"),
    (PASS, "save show solve"),
    (LOOSE, "enable disable"),
    (PASS, "plot"),
    (LOOSE, "reset"),
    (APPLY, "compile set"),
    (PASS, "dump"),
    (APPLY, "open close"),
    (PASS, "//"),
    (APPLY, "redirect"),
    (PASS, "help"),
    (LOOSE, "quit"),
    (PASS, "?"),
    (LOOSE, "next"),
    (PASS, "panel sample"),
    (APPLY, "clear"),
    (PASS, "about calcvoltagebases"),
    (LOOSE, "setkvbase"),
    (PASS, "buildy get init export fileedit voltages currents powers seqvoltages seqcurrents seqpowers losses"),
    (PASS, "phaselosses cktlosses"),
    (LOOSE, "allocateloads formedit"),
    (PASS, "totals capacity classes userclasses zsc zsc10 zscrefresh ysc puvoltages varvalues varnames"),
    (APPLY, "buscoords"),
    (PASS, "makebuslist"),
    (LOOSE, "makeposseq reduce"),
    (PASS, "interpolate alignfile top"),
    (LOOSE, "rotate"),
    (PASS, "vdiff summary"),
    (LOOSE, "distribute"),
    (PASS, "di_plot comparecases yearlycurves"),
    (LOOSE, "cd"),
    (PASS, "visualize closedi"),
    (LOOSE, "doscmd estimate reconductor"),
    (PASS, "_initsnap _solvenocontrol _samplecontrols _docontrolactions _showcontrolqueue _solvedirect _solvepflow"),
    (PASS, "addbusmarker"),
    (LOOSE, "uuids setloadandgenkv cvrtloadshapes"),
    (PASS, "nodediff"),
    (LOOSE, "rephase"),
    (PLACES, "setbusxy"),
    (LOOSE, "updatestorage obfuscate"),
    (APPLY, "latlongcoords batchedit"),
    (PASS, "pstcalc"),
    (LOOSE, "variable reprocessbuses"),
    (PASS, "clearbusmarkers relcalc"),
    (LOOSE, "var"),
    (PASS, "cleanup finishtimestep nodelist"),
    (LOOSE, "connect disconnect remove"),
    (PASS, "calcincmatrix calcincmatrix_o refine_buslevels calclaplacian exportoverloads exportvviolations zsc012"),
    (PASS, "allpceatbus allpdeatbus totalpowers"),
    (PLACES, "giscoords"),
    (APPLY, "clearall"),
    (PASS, "comhelp"),
    (LOOSE, "newactor"),
    (PASS, "wait"),
    (LOOSE, "solveall abort clone"),
)

CHOICE = refused("Remove it: elements are named where they are edited.")
PLANNING = noted("settings of planning and reliability are not represented")
LIMITS = noted("limits of voltages are not represented")
STATISTICS = noted("random loads are not represented")
BASE_HZ = applied(v.hertz)
MARKERS = (
    "markcapacitors markregulators markpvsystems markstorage capmarkercode regmarkercode pvmarkercode storemarkercode "
    "capmarkersize regmarkersize pvmarkersize storemarkersize"
)
PROTECTION = (
    "markfuses fusemarkercode fusemarkersize markreclosers reclosermarkercode reclosermarkersize registryupdate "
    "markrelays relaymarkercode relaymarkersize processtime totaltime steptime sampleenergymeters miniterations "
    "dssvisualizationtool"
)

OPTIONS: Rules = table(
    (CHOICE, "type element"),
    (SERIES, "hour sec"),
    (fixed("0", "1", remedy="Give the loads of the year that you mean: growth is not represented."), "year"),
    (BASE_HZ, "frequency"),
    (SERIES, "stepsize mode"),
    (STATISTICS, "random"),
    (SERIES, "number time"),
    (CHOICE, "class object circuit"),
    (PASS, "editor tolerance maxiterations"),
    (SERIES, "h"),
    (fixed("powerflow", "p", remedy="Give the loads model=2: constant impedances."), "loadmodel"),
    (applied(v.nonnegative), "loadmult"),
    (LIMITS, "normvminpu normvmaxpu emergvminpu emergvmaxpu"),
    (STATISTICS, "%mean %stddev"),
    (SERIES, "ldcurve %growth"),
    (PLANNING, "genkw genpf capkvar addtype"),
    (fixed(*NO, remedy="Give every element a name of its own."), "allowduplicates"),
    (PLANNING, "zonelock ueweight lossweight ueregs lossregs"),
    (applied(v.numbers), "voltagebases"),
    (PASS, "algorithm trapezoidal"),
    (PLANNING, "autobuslist"),
    (PASS, "controlmode tracecontrol"),
    (applied(v.number), "genmult"),
    (SERIES, "defaultdaily defaultyearly"),
    (refused("Give it to the loads."), "allocationfactors"),
    (fixed("multiphase", "m", remedy="Write a three-phase feeder."), "cktmodel"),
    (PLANNING, "pricesignal pricecurve"),
    (CHOICE, "terminal"),
    (BASE_HZ, "basefrequency"),
    (noted("harmonics are not represented"), "harmonics"),
    (PASS, "maxcontroliter"),
    (CHOICE, "bus"),
    (refused("Give the folder in Redirect."), "datapath"),
    (PLANNING, "keeplist reduceoption"),
    (PASS, "demandinterval"),
    (LIMITS, "%normal"),
    (PASS, "diverbose casename markercode nodewidth log recorder overloadreport voltexceptionreport"),
    (refused("Give kW and kvar of the loads."), "cfactors"),
    (PASS, "showexport numallociterations"),
    (BASE_HZ, "defaultbasefrequency"),
    (PASS, "markswitches switchmarkercode daisysize marktransformers transmarkercode transmarkersize"),
    (SERIES, "loadshapeclass"),
    (applied(v.earth_model), "earthmodel"),
    (PASS, f"querylog {MARKERS}"),
    (fixed(*NO, remedy="Remove it."), "neglectloady"),
    (PASS, PROTECTION),
    (PLANNING, "keepload zmag"),
    (noted("ratings are not represented"), "seasonrating seasonsignal"),
    (PASS, "linetypes eventlogdefault"),
    (fixed(*NO, remedy="Divide long lines into sections."), "longlinecorrection"),
    (PASS, "showreports numcpus numcores numactors activeactor cpu actorprogress parallel concatenatereports"),
    (PASS, "numanodes"),
)
