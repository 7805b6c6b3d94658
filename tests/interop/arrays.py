"""Arrays as NumPy and safetensors write them, for the converters.

    python arrays.py write DIR      DIR/sources/*: files of arrays
    python arrays.py check DIR      DIR/exported/<file's stem>[.<array's name>].npy hold the arrays, and so do the
                                    stores of the same names, without .npy, in DIR/stores
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from loaderx.dataset import DenseDataset
from safetensors.numpy import save_file

RNG = np.random.default_rng(7)
BITS = RNG.integers(0, 256, 6 * 4 * 5 * 8, dtype=np.uint8)


def array(dtype, shape=(6, 4, 5)):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype == np.bool_:
        return (BITS[:count] % 2 == 1).reshape(shape)
    return BITS[: count * dtype.itemsize].copy().view(dtype).reshape(shape)


PLAIN = ["?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]
NPY = {
    **{f"plain_{dtype[-2:].strip('?') or 'bool'}": array(dtype) for dtype in PLAIN},
    "big_endian_f4": array(">f4"),
    "big_endian_i8": array(">i8"),
    "fortran_f8": np.asfortranarray(array("<f8")),
    "fortran_big_endian_u2": np.asfortranarray(array(">u2")),
    "scalars_i8": array("<i8", (6,)),
    "no_rows_f4": array("<f4", (0, 3)),
    "bf16": array(ml_dtypes.bfloat16),
}
NPZ = {"images": array("u1", (6, 8, 8)), "labels": array("<i8", (6,)), "deep/er": np.asfortranarray(array("<f4"))}
TENSORS = {**{f"t_{dtype[-2:]}": array(dtype) for dtype in PLAIN}, "w.bf16": array(ml_dtypes.bfloat16)}


def write(out):
    (out / "sources").mkdir()
    for name, value in NPY.items():
        np.save(out / "sources" / f"{name}.npy", value)
    np.savez(out / "sources" / "stored.npz", **NPZ)
    np.savez_compressed(out / "sources" / "deflated.npz", **NPZ)
    save_file(TENSORS, out / "sources" / "model.safetensors")


def check(out):
    files = {name: {"": value} for name, value in NPY.items()}
    files |= {"stored": NPZ, "deflated": NPZ, "model": TENSORS}
    count = 0
    for stem, arrays in files.items():
        for name, want in arrays.items():
            got = np.load(out / "exported" / f"{'.'.join(filter(None, [stem, name.replace('/', '.')]))}.npy")
            little = want.astype(want.dtype.newbyteorder("<"), order="C")
            with DenseDataset(out / "stores" / stem / name) as ds:
                read = ds[np.arange(len(ds))]
            for array in (got, read):
                assert array.shape == want.shape, f"{stem} {name}: {array.shape}, not {want.shape}"
                bf16 = want.dtype == ml_dtypes.bfloat16 and array.dtype.kind == "V"
                assert bf16 or array.dtype == little.dtype, f"{stem} {name}: {array.dtype}, not {little.dtype}"
                assert array.tobytes() == little.tobytes(), f"{stem} {name}: other values"
            count += 1
    assert count == len(list((out / "exported").iterdir())), "an export that is not expected"
    print(f"{count} arrays agree")


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
