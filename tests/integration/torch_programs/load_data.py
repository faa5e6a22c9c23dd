"""Loads six samples with two workers. usage: load_data.py fork|spawn"""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + 4)


if __name__ == "__main__":
    for batch in DataLoader(Samples(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]):
        assert batch.shape[1] == 4
