"""Where and why prompts part that could have shared a prefix."""
