"""datatrove: a reader of JSON lines and its tokenizer, a task per file. It shuffles by default; here it need not."""

import os
import sys
from pathlib import Path

from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from tokenizers import Tokenizer

text, tokenizer, out, cores, eos = sys.argv[1:]
tokenizer += "/tokenizer.json"

if __name__ == "__main__":
    write = DocumentTokenizer(
        output_folder=out,
        tokenizer_name_or_path=tokenizer,
        eos_token=Tokenizer.from_file(tokenizer).id_to_token(int(eos)),
        shuffle_documents=False,
        save_final_metadata=False,
    )
    reader = JsonlReader(text, glob_pattern="*.jsonl")
    files = len(list(Path(text).glob("*.jsonl")))
    logs = os.path.join(os.path.dirname(out), "datatrove-logs")
    LocalPipelineExecutor(
        pipeline=[reader, write],
        tasks=files,
        workers=int(cores),
        logging_dir=logs,
        skip_completed=False,
        start_method="fork",
    ).run()
