"""Training runs: configuration, checkpoints, parallel devices, the list of learners."""
