"""Writes a GGUF file's model anew with its weights in fp32, so that engines compute the same.

python bench/peers/expand_gguf.py SOURCE.gguf TARGET.gguf
"""

from __future__ import annotations

import sys

from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

_OWN = ("GGUF.", "general.architecture", "general.file_type", "general.quantization_version")


def main() -> None:
    """Copy every field, and every tensor as fp32."""
    source, target = sys.argv[1:]
    reader = GGUFReader(source)
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
