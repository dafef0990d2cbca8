"""Who may do what, and for how long: policy files, eligibility, tenants."""
