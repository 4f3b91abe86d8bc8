"""Run one child: confinement, limits, process tree, output caps. `run.run` demands a permit (law 1)."""
