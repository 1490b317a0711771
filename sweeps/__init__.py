"""Sweeps that ship with mas_sim, as YAML; `README.md` lists every key."""
