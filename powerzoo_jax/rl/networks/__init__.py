"""Policy and value networks and their action heads."""
