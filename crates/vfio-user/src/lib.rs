//! What the messages of vfio-user mean: codec, framing and descriptor passing for both sides.
