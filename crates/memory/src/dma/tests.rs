//! Tests of the DMA map.
