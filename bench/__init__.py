"""What Trivet costs, as ratios to a floor that was measured in the same run."""
