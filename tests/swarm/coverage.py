REACHED: set[str] = set()
