"""The one door: profiles, policy, leases and approvals answer Allow, Ask or Deny; only here permits are minted."""
