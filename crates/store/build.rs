//! Rebuilds the crate when a migration changes: migrations are embedded, and cargo does not track
//! them.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
