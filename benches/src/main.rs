//! The program `loadlab`.

fn main() {}
