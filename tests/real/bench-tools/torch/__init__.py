"""The parts of PyTorch that guidellm and `datasets` use: a seeded generator, and data loading in one process. The
real package has 4 GB and is not needed to benchmark a server over HTTP. Measurements and figures are guidellm's
own."""

from . import utils  # noqa: F401


class Generator:
    def manual_seed(self, seed):
        self.seed = seed
        return self


class Tensor(int):
    """The number of an epoch, which `datasets` would share between processes."""

    def share_memory_(self):
        return self


def tensor(value):
    return Tensor(value)


class nn:  # noqa: N801
    class Module:
        """No object is a Module, but `datasets` checks for it."""
