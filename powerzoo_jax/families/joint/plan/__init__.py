"""Plans of a transmission grid with feeders: rules, foresight, and bounds at a price of overload."""
