//! `zonal completions` and `zonal man`: what the command line says about itself.

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Cli, Completions, Man};

/// Prints a shell's completion script.
pub(crate) fn completions(args: &Completions) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "zonal", &mut script);
    say!("{}", String::from_utf8_lossy(&script));
}

/// Writes a manual page for the command and each subcommand.
pub(crate) fn man(args: &Man) -> Result<()> {
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &args.dir))
        .with_context(|| format!("writing manual pages to {}", args.dir.display()))
}
