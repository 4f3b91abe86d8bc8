"""The hollow-change corpus: small seeded changes, honest ones and hollow ones, and what must become of each."""
