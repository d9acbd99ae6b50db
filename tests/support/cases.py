"""Tables of wrong files and their error messages, as text that reads like the files."""

import re


def cases(text: str) -> list[tuple[str, str]]:
    """Return the edit and the message of each case.

    An edit starts at the margin, and `;` separates its lines. Its message is indented below it.
    """
    return [
        (re.sub(r";\s+", "\n", edit.strip()), " ".join(message.split()))
        for edit, message in re.findall(r"((?:^\S.*\n)+)((?:^ +.*\n)+)", text, re.MULTILINE)
    ]
