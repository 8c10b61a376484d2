//! What the bytes of NVMe mean: layouts, and nothing else.
