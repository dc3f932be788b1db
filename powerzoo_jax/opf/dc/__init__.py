"""DC optimal power flow, with and without security constraints."""
