"""Parts of scripts/mutate."""
