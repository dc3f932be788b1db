"""AC optimal power flow."""
