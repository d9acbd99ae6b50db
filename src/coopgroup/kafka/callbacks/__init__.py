"""The application's side of the group: its notices, its callbacks and the errors that it hears."""
