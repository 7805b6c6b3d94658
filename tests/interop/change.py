"""Change a store with the reference implementation, the Python loaderx, and tell what it then holds.

    python change.py STORE HELD [append | delete | compact]...

HELD becomes a file of records: u64 count, u64 length of each, and their bytes end to end, little-endian.
"""

import sys
from pathlib import Path

import msgpack
import numpy as np
from loaderx.zrecord import Zrecord


def gather(store, idxs):
    """The records' bytes end to end, and the length of each."""
    lengths = store.lengths(idxs)
    out = np.empty(int(lengths.sum(dtype=np.uint64)), np.uint8)
    ends = np.cumsum(lengths, dtype=np.uint64)
    store.gather(idxs, out, ends - lengths)
    return out, lengths


def append(store):
    """The first records again, without those of no bytes, which the reference refuses."""
    idxs = np.arange(min(len(store), 5), dtype=np.uint64)
    idxs = idxs[store.lengths(idxs) > 0]
    if len(idxs):
        src, lengths = gather(store, idxs)
        store.append(src, np.cumsum(lengths, dtype=np.uint64) - lengths)


def delete(store):
    if len(store):
        store.delete(sorted({0, len(store) // 2, len(store) - 1}))


def main():
    path, held, *actions = sys.argv[1:]
    schema = Path(path) / "schema.msgpack"
    codec = msgpack.loads(schema.read_bytes())["codec"] if schema.exists() else "zstd"
    with Zrecord(path, codec=codec) as store:
        for action in actions:
            {"append": append, "delete": delete, "compact": Zrecord.compact}[action](store)
        out, lengths = gather(store, np.arange(len(store), dtype=np.uint64))
    numbers = np.array([len(lengths), *lengths], dtype="<u8")
    Path(held).write_bytes(numbers.tobytes() + out.tobytes())


if __name__ == "__main__":
    main()
