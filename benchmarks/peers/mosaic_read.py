"""Batches of Mosaic's streaming, shuffled, through a DataLoader."""

import sys
import types
import warnings
from importlib.metadata import version

from pace import again, batch, more, path, report

warnings.filterwarnings("ignore", "The given NumPy array is not writable")
sys.modules["streaming.vision"] = types.ModuleType("streaming.vision")
import streaming
import torch

workers = int(more[0])
streaming.base.util.clean_stale_shared_memory()
dataset = streaming.StreamingDataset(local=path, shuffle=True, batch_size=batch)
loader = torch.utils.data.DataLoader(dataset, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
passes = ((batch["ids"].long() for batch in one) for one in again(loader))
report(passes, name=f"Mosaic streaming {version('mosaicml-streaming')}")
