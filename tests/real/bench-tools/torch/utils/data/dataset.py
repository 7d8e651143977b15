from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


class IterableDataset(Generic[T]):
    pass
