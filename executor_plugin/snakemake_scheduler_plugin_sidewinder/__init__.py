"""Sidewinder's scheduler plugin for Snakemake."""
