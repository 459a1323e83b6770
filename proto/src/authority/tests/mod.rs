//! The repair against hand-built HTTP/2 frames.

mod connection;
mod end_to_end;
mod frames;
mod kit;
mod properties;
