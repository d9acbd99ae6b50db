"""`python -m coopgroup.cli`: the same program, with the given interpreter."""

from coopgroup.cli.app import main

main()
