"""Batches of litData, shuffled, through its DataLoader."""

import os

from pace import again, batch, more, path, report, seq_len

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import litdata

workers = int(more[0])
dataset = litdata.StreamingDataset(path, item_loader=litdata.TokensLoader(block_size=seq_len), shuffle=True)
loader = litdata.StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, persistent_workers=workers > 0)
report(((batch.long() for batch in one) for one in again(loader)), name=f"litData {litdata.__version__}")
