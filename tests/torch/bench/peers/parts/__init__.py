"""What is measured. Each part has a letter and a name, a plan for each mode with an estimate, a function that measures,
and what its pages show: blocks of Markdown, and plots."""

from . import forming, launcher, recovery, scale, server, steady, stores

ALL = (forming, recovery, stores, launcher, server, steady, scale)


def named(words):
    """The parts of a list such as `a,c` or `forming,stores`."""
    chosen = []
    for word in words.split(","):
        found = [part for part in ALL if word.strip() in (part.LETTER, part.NAME)]
        if not found:
            known = ", ".join(f"{part.LETTER} ({part.NAME})" for part in ALL)
            raise ValueError(f'there is no part "{word}"; they are {known}')
        chosen += found
    return [part for part in ALL if part in chosen]


def in_turns(number, sides):
    """Now the one first, now the other."""
    return list(sides) if number % 2 else list(sides)[::-1]
