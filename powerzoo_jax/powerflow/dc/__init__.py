"""DC power flow and its outage factors."""
