"""Distribution-feeder environments with devices."""
