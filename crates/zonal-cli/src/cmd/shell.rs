//! `zonal completions` and `zonal man`: what the command line says about itself.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use zonal::output;

use crate::args::{Cli, Completions, Man};

/// Prints a shell's completion script.
pub(crate) fn completions(args: &Completions) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "zonal", &mut script);
    say!("{}", String::from_utf8_lossy(&script));
}

/// Writes a manual page for the command and each subcommand.
pub(crate) fn man(args: &Man) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    std::fs::create_dir_all(&args.dir)
        .and_then(|()| write_pages(command, &args.dir))
        .with_context(|| format!("writing manual pages to {}", args.dir.display()))
}

fn write_pages(command: clap::Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below.clone(), dir)?;
    }
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    output::write(&dir.join(page.get_filename()), text, &[])
}
