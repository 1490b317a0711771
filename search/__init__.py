"""Searching tilings: spaces, objectives and searchers over one dataflow on one arch and workload."""
