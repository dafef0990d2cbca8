"""Other gateways, measured in the same run where they are installed."""
