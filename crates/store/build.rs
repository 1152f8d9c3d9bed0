//! Rebuilds the crate when a migration changes: they are embedded, and cargo does not see that.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
