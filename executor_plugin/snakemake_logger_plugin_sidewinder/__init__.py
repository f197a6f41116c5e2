"""Sidewinder's logger plugin for Snakemake."""
