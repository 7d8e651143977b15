"""What guidellm and `datasets` take of PyTorch, whose 4 GB are for what a benchmark of a server over HTTP does not do: a
generator that is seeded, and data loading in one process. What guidellm measures and computes is its own."""

from . import utils  # noqa: F401


class Generator:
    def manual_seed(self, seed):
        self.seed = seed
        return self


class Tensor:
    """Nothing is one; `datasets` asks."""


class nn:  # noqa: N801
    class Module:
        """Nothing is one; `datasets` asks."""
