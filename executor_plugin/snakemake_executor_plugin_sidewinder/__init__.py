"""Sidewinder's executor plugin for Snakemake."""
