"""The prefix tier: what the engine behind the proxy keeps of prompts."""
