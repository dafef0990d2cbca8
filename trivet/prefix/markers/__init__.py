"""Where breakpoints go and for how long: rules, what traffic showed, what it costs."""
