"""Writes tests/checkpoint/pickles/: small files of torch.save, good, odd and hostile, for the tests
of Capstan's reader, which executes nothing.

    python make_pickles.py

The versions are those of requirements.txt. good.* hold the tensors of `tensors()`: value i of every
tensor is i / 8 before the tensor is cut, turned or spread.
"""

import io
import json
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "checkpoint" / "pickles"


def ramp(*shape, dtype=torch.float32):
    n = 1
    for extent in shape:
        n *= extent
    return (torch.arange(n, dtype=torch.float32) / 8).to(dtype).reshape(shape)


def tensors():
    big = ramp(6, 4)
    return OrderedDict(
        plain=ramp(3, 5),
        bf16=ramp(2, 4, dtype=torch.bfloat16),
        f16=ramp(2, 4, dtype=torch.float16),
        f64=ramp(3, dtype=torch.float64),
        i64=torch.arange(5),
        flag=torch.tensor([True, False]),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        rows=big[2:5],  # a view of another's storage
        whole=big,
        turned=ramp(3, 5).t(),
        spread=ramp(4, 1).expand(4, 3),
        column=ramp(4, 6)[:, 1],
    )


def module():
    layer = torch.nn.Linear(3, 2)  # parameters, and a state_dict with _metadata
    layer.weight.data = ramp(2, 3)
    layer.bias.data = ramp(2)
    return layer


class Runs:
    def __reduce__(self):
        return os.system, ("touch /tmp/capstan-was-here",)


def archive(data_pkl, storages=()):
    """A zip as torch.save makes it, around any pickle."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", data_pkl)
        for key, data in storages:
            z.writestr(f"archive/data/{key}", data)
    return out.getvalue()


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s


def number(n):
    data = n.to_bytes(9, "little", signed=True) if n >= 2**63 else n.to_bytes(8, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def tensor(key, values, offset, size, stride, storage=b"FloatStorage"):
    """Instructions that make a tensor, by hand: whatever its sizes say."""
    tuple_of = lambda numbers: b"(" + b"".join(map(number, numbers)) + b"t"
    persistent = b"(" + text(b"storage") + b"ctorch\n" + storage + b"\n" + text(key) + text(b"cpu")
    persistent += number(values) + b"tQ"
    arguments = b"(" + persistent + number(offset) + tuple_of(size) + tuple_of(stride) + b"\x89N"
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"tR"


def one(instructions):
    return b"\x80\x02}" + text(b"a") + instructions + b"s."


def hostile():
    data = [("0", bytes(16))]
    floats = lambda *a: archive(one(tensor(b"0", *a)), data)
    yield "runs_system", archive(pickle.dumps({"a": Runs()}, protocol=2))
    yield "runs_eval_protocol4", archive(pickle.dumps({"a": eval}, protocol=4))
    yield "sets_attributes", archive(one(tensor(b"0", 4, 0, [4], [1]) + b"}b"), data)
    yield "instance", archive(b"\x80\x02(cos\nsystem\no.")
    yield "deep", archive(b"\x80\x02" + b"(" * 5000 + b"t" * 5000 + b".")
    yield "deep_lists", archive(b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".")
    yield "huge_memo", archive(b"\x80\x02}r\xff\xff\xff\xff" + b"j\xfe\xff\xff\xff.")
    yield "long_text", archive(b"\x80\x02X\xff\xff\xff\xffabc.")
    yield "longer_text", archive(b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.")
    yield "huge_number", archive(one(b"\x8a\xff" + b"\x01" * 255))
    yield "no_end", archive(b"\x80\x02}" + text(b"a"))
    yield "empty_pickle", archive(b"")
    yield "no_stack", archive(b"\x80\x02.")
    yield "no_mark", archive(b"\x80\x02}u.")
    yield "list_root", archive(b"\x80\x02].")
    yield "too_large", floats(4, 0, [5], [1])
    yield "offset_too_large", floats(4, 2, [3], [1])
    yield "stride_too_large", floats(4, 0, [2, 2], [4, 1])
    yield "negative_size", floats(4, 0, [-1], [1])
    yield "negative_stride", floats(4, 3, [4], [-1])
    yield "negative_offset", floats(4, -1, [4], [1])
    yield "overflow", floats(4, 0, [2**62, 2**62], [2**62, 1])
    yield "spread_overflow", floats(4, 0, [2**40, 2**40], [0, 0])
    yield "strides_missing", floats(4, 0, [2, 2], [1])
    yield "storage_says_more", archive(one(tensor(b"0", 8, 0, [8], [1])), data)
    yield "storage_missing", archive(one(tensor(b"7", 4, 0, [4], [1])), data)
    yield "storage_elsewhere", archive(one(tensor(b"../../data.pkl", 4, 0, [4], [1])), data)
    yield "other_storage", archive(one(tensor(b"0", 4, 0, [4], [1], b"ComplexFloatStorage")), data)
    yield "name_of_bytes", archive(b"\x80\x02}" + text(b"a\x1b[31m\xff") + tensor(b"0", 4, 0, [4], [1]) + b"s.", data)
    yield "name_twice", archive(b"\x80\x02}(" + 2 * (text(b"a") + tensor(b"0", 4, 0, [4], [1])) + b"u.", data)
    yield "no_pickle", archive_without_pickle()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", one(tensor(b"0", 4, 0, [4], [1])) * 50)
    yield "compressed", out.getvalue()
    big_endian = io.BytesIO(archive(one(tensor(b"0", 4, 0, [4], [1])), data))
    with zipfile.ZipFile(big_endian, "a", zipfile.ZIP_STORED) as z:
        z.writestr("archive/byteorder", "big")
    yield "big_endian", big_endian.getvalue()
    good = archive(one(tensor(b"0", 4, 0, [4], [1])), data)
    yield "cut_short", good[:-30]
    directory = good.rindex(b"PK\x01\x02")
    yield "place_outside", good[: directory + 42] + b"\xf0\xff\xff\x7f" + good[directory + 46 :]
    yield "size_outside", good[: directory + 20] + b"\xf0\xff\xff\x7f" * 2 + good[directory + 28 :]
    yield "endless_table", good[:-10] + b"\xff\xff\xff\x7f" + good[-6:]


def archive_without_pickle():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/version", "3")
    return out.getvalue()


def shards(folder):
    folder.mkdir(exist_ok=True)
    all_of_them = tensors()
    names = list(all_of_them)
    halves = {"pytorch_model-00001-of-00002.bin": names[:5], "pytorch_model-00002-of-00002.bin": names[5:]}
    for file, some in halves.items():
        torch.save({n: all_of_them[n].clone() for n in some}, folder / file)
    weight_map = {n: file for file, some in halves.items() for n in some}
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in all_of_them.values())},
             "weight_map": weight_map}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2) + "\n")


def main():
    FOLDER.mkdir(exist_ok=True)
    torch.save(tensors(), FOLDER / "good.bin")
    torch.save(dict(tensors()), FOLDER / "good_protocol4.bin", pickle_protocol=4)
    torch.save({"model": tensors(), "step": 7, "rate": 0.5, "none": None}, FOLDER / "good_nested.bin")
    torch.save(module().state_dict(), FOLDER / "module.bin")
    torch.save(dict(module().named_parameters()), FOLDER / "parameters.bin")
    torch.save(tensors(), FOLDER / "legacy.bin", _use_new_zipfile_serialization=False)
    shards(FOLDER / "shards")
    for name, data in hostile():
        (FOLDER / f"bad_{name}.bin").write_bytes(data)


main()
