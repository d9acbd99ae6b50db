"""Read a consumer's configuration: connection keys, SASL, TLS, and the values that may be shown."""
