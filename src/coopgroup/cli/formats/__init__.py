"""The JSON of `coopgroup plan` and `coopgroup protocol`."""
