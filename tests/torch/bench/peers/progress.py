"""What is being measured, and how long the rest takes."""

import sys
import time


class Progress:
    """Steps with estimates in seconds. What the steps so far took corrects the estimate of the others."""

    def __init__(self, estimate, clock=time.monotonic, write=None):
        self.estimate, self.clock = estimate, clock
        self.write = write or (lambda line: print(line, file=sys.stderr, flush=True))
        self.begun = clock()
        # The estimate of all parts that are over, and of the current one, of which `inside` is done.
        self.over = self.part = self.inside = 0.0
        self.name = ""

    def begin(self, name, estimate):
        """A part begins; the one before it is over."""
        self.over += self.part
        self.name, self.part, self.inside = name, estimate, 0.0

    def step(self, what, share):
        """Something that begins, when this share of its part is done."""
        self.inside = share
        passed, left = self.clock() - self.begun, self.left()
        self.write(f"[{clock_text(passed)}, about {clock_text(left)} left] {self.name}: {what}")

    def left(self):
        done = self.over + self.part * self.inside
        passed = self.clock() - self.begun
        # Little is known before a twentieth is done.
        pace = passed / done if done > self.estimate / 20 else 1.0
        return max(0.0, self.estimate - done) * max(pace, 0.2)


def clock_text(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
