"""The first steps with Trivet: `trivet init`, and completion of its commands in a shell."""
