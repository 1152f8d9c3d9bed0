//! `cargo xtask capacity`: how many nodes a number of devices needs, from the committed coefficients.

use std::path::Path;

use switchboard_capacity::{Coefficients, Load, Machine, Plan, Prices, write_documents};

/// The load, the machines and what they cost.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    prices: Prices,
    /// Write the computed parts of docs/scale.md and docs/performance.md and the plot instead
    #[arg(long)]
    write_documents: bool,
}

/// Prints the plan, or writes the documents.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let coefficients = Coefficients::committed()?;
    if options.write_documents {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        return Ok(write_documents(&root, &coefficients)?);
    }
    let plan = Plan::new(
        &coefficients,
        &options.load,
        &options.machine,
        &options.prices,
    );
    print!("{plan}");
    println!("\n{}.", coefficients.measured);
    Ok(())
}
