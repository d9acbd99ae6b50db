"""Tests of coopgroup; docs/development/tests.md is the map."""
