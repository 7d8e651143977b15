from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class DataLoader(Generic[T]):
    def __init__(self, dataset, collate_fn, **_):
        self.dataset, self.collate_fn = dataset, collate_fn

    def __iter__(self):
        for item in self.dataset:
            yield self.collate_fn([item])
