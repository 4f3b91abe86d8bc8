"""Who does the work: roster, driver port, one file per driver, and the care of their processes."""
