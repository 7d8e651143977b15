from .dataloader import DataLoader  # noqa: F401
from .dataset import IterableDataset  # noqa: F401


def get_worker_info():
    return None
