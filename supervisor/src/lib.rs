//! The supervisor, as a library for its tests.
