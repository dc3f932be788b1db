"""AC power flow after outages and switching."""
