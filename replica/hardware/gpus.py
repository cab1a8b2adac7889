"""What one GPU offers. Sizes as the vendor or the driver states them, rates as sustained peaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30


@dataclass(slots=True, frozen=True)
class Gpu:
    """One GPU of a host.

    ``hbm_gb`` is the advertised size in 10^9 bytes; ``usable_gib`` is what an engine sees and its
    memory fraction is taken of. ``host_link_gb_per_s`` is the effective rate from host memory, one
    GPU, one direction: an assumption (HGX hosts are normally PCIe gen 5; sweep 25 to 100).
    ``dense_fp4_pflops`` is None where NVFP4 weights do not run natively.
    """

    name: str
    hbm_gb: float
    usable_gib: float
    memory_tb_per_s: float
    dense_fp4_pflops: float | None
    dense_fp8_pflops: float
    dense_bf16_pflops: float
    nvlink_gb_per_s: float
    pcie_gb_per_s: float
    host_link_gb_per_s: float

    @property
    def has_fp4(self) -> bool:
        """NVFP4 weights run natively."""
        return self.dense_fp4_pflops is not None


B200: Final = Gpu(
    name="b200",
    hbm_gb=180.0,
    usable_gib=179.0,
    memory_tb_per_s=7.7,
    dense_fp4_pflops=9.0,
    dense_fp8_pflops=4.5,
    dense_bf16_pflops=2.25,
    nvlink_gb_per_s=900.0,
    pcie_gb_per_s=64.0,
    host_link_gb_per_s=50.0,
)
B300: Final = Gpu(
    name="b300",
    hbm_gb=288.0,
    usable_gib=268.0,
    memory_tb_per_s=7.75,
    dense_fp4_pflops=14.0,
    dense_fp8_pflops=4.5,
    dense_bf16_pflops=2.25,
    nvlink_gb_per_s=900.0,
    pcie_gb_per_s=64.0,
    host_link_gb_per_s=50.0,
)
H200: Final = Gpu(
    name="h200",
    hbm_gb=141.0,
    usable_gib=139.8,
    memory_tb_per_s=4.8,
    dense_fp4_pflops=None,
    dense_fp8_pflops=1.979,
    dense_bf16_pflops=0.989,
    nvlink_gb_per_s=450.0,
    pcie_gb_per_s=64.0,
    host_link_gb_per_s=50.0,
)
"""For planning only: no step times were measured for it here, so it has no profile."""

GPUS: Final[dict[str, Gpu]] = {gpu.name: gpu for gpu in (B200, B300, H200)}
"""Every known GPU by name."""


def gpu_named(name: str) -> Gpu:
    """The GPU of this name, in any case.

    Raises:
        ValueError: the name is unknown; the message lists the known ones.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise ValueError(f"unknown GPU {name!r}: known are {', '.join(sorted(GPUS))}")
    return gpu
