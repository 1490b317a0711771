"""Shipped architectures and energy tables, as YAML files (see README.md)."""
