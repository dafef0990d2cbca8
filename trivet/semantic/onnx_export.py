"""Writes a sentence-transformers folder as one ONNX file. Run as a process: it loads torch.

`python -m trivet.semantic.onnx_export FOLDER FILE`. The graph takes int64 `input_ids`,
`attention_mask` and `token_type_ids` of shape (batch, tokens), and gives `vectors` of shape
(batch, dimension): the mean over the tokens, of length 1, in float32.
"""

from __future__ import annotations

import sys
import warnings

import torch
from transformers import AutoModel

_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_FAR = -1e9
"""Added to attention scores of padding: its share after softmax is exactly 0 in float32."""


class _Pooled(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        # A mask of four dimensions is used as it is, whereas transformers builds the mask of two
        # with Python conditions, which tracing would freeze.
        mask = (1 - attention_mask)[:, None, None, :].float() * _FAR
        encoded = self.encoder(
            input_ids=input_ids, attention_mask=mask, token_type_ids=token_type_ids
        )
        weights = attention_mask[:, :, None].float()
        mean = (encoded.last_hidden_state * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2.0, dim=1)


def export(folder: str, file: str) -> None:
    """Write the model of `folder` to `file`."""
    torch.set_num_threads(1)
    encoder = AutoModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True
    )
    ids = torch.ones((2, 7), dtype=torch.int64)
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    axes = {name: {0: "batch", 1: "tokens"} for name in _INPUTS}
    with warnings.catch_warnings():
        # The exporter warns of itself and of what it traces; the tests compare the vectors.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Pooled(encoder).eval(),
            (ids, mask, torch.zeros_like(ids)),
            file,
            dynamo=False,
            input_names=list(_INPUTS),
            output_names=["vectors"],
            dynamic_axes={**axes, "vectors": {0: "batch"}},
        )


if __name__ == "__main__":
    export(*sys.argv[1:3])
