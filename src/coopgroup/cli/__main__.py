"""`python -m coopgroup.cli`: the same program, started with a given interpreter."""

from coopgroup.cli.app import main

main()
