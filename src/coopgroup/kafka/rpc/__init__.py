"""Requests to the brokers: connections, kafka-python's transport, requests and answers."""
