"""AC power flow of meshed networks with voltage-controlled buses."""
