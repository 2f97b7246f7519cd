//! The command line of `zonal trace print`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use zonal::layer::meter::OpKind;

#[derive(Args)]
pub(crate) struct Print {
    /// Trace that a `trace(FILE):` layer recorded
    pub(crate) trace: PathBuf,
    /// Only operations on this zone and on all zones at once; may be repeated
    #[arg(long, value_name = "ZONE", value_delimiter = ',')]
    pub(crate) zone: Vec<u32>,
    /// Only operations of this kind; may be repeated
    #[arg(long, value_name = "OPERATION", value_delimiter = ',', value_parser = kind())]
    pub(crate) op: Vec<OpKind>,
    /// Print only the number of operations of each kind
    #[arg(long)]
    pub(crate) summary: bool,
}

/// The kinds by name, so that help and errors list them.
fn kind() -> impl TypedValueParser<Value = OpKind> {
    PossibleValuesParser::new(OpKind::ALL.map(OpKind::name)).try_map(|given| {
        OpKind::ALL.into_iter().find(|kind| kind.name() == given).ok_or("not an operation")
    })
}
