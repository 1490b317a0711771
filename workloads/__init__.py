"""Shipped attention workloads, as YAML files (see README.md)."""
