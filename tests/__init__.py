"""Tests of coopgroup; tests/README.md is the map."""
