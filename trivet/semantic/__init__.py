"""The semantic tier: closed until it is measured (a later release fills it)."""
