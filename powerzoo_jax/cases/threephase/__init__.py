"""Three-phase feeder cases: tables, rules and the shipped library."""
