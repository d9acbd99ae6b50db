"""`python -m coopgroup`: the program `coopgroup`, with the given interpreter."""

from coopgroup.cli.app import main

main()
