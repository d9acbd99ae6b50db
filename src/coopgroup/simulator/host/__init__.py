"""The processes of a simulated group: each hosts a session, with an application."""
