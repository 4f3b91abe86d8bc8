"""One file per schema revision, named by its date; a released one never changes."""
