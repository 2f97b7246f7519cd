//! The page of all experiments.

use super::{Changes, Experiment, Name, Scope};
use crate::error::Result;
use crate::report::page::{Origin, Page, Program, Section};

/// All experiments, each with its own config.
pub fn all(changes: &Changes) -> Result<Vec<Experiment>> {
    Name::ALL.into_iter().map(|name| Experiment::new(name, name.text(), changes)).collect()
}

/// The page of their sections, made by a program.
pub fn page(sections: Vec<Section>, changes: &Changes, program: &Program) -> Page {
    let mut text = vec![
        format!("Made by {program}."),
        "One model of flash below different translation layers, held against what was published: \
         the talk \"How Zoned Namespaces Improve SSD Lifetime, Throughput and Latency\" (Western \
         Digital, 2020), and the raw data of \"Performance Characterization of NVMe Flash Devices \
         with Zoned Namespaces\" (arXiv 2310.19094), measured on a zoned and a conventional drive. A model of spinning disks is held against \
         published figures of such disks."
            .to_owned(),
        "Calibrated: constants of the model were fitted so that this figure comes out, so that it \
         agrees says little. Predicted: it comes out without having been aimed at. Predicted, for \
         this reading: the published figure does not say on which drive or by which workload it \
         was measured; ours is for the reading that is named, and other readings stand beside it. \
         Errors beyond 10 % (of percentages, 10 points) are marked."
            .to_owned(),
        origins(&sections),
        "The talk's values are those of its transcript, which names them while it shows a chart. \
         It has slips of its own: once 70 % for 7 %, once 20 % for 28 %. The first figure of \
         \"ZNS: Avoiding the Block Interface Tax for Flash-based SSDs\" (USENIX ATC 2021) shows \
         three drives of 2 TB raw media whose capacity is overwritten four times, on an axis up to \
         1000 MiB/s. The text of the paper that was found has its caption and axes, and no value \
         of a curve, so none is compared."
            .to_owned(),
        "Throughput is in 10^6 bytes a second. Over-provisioning is (raw − user) / user; effective \
         over-provisioning leaves out what is always free, open or bad. The same program, configs \
         and seed give this page again, byte for byte."
            .to_owned(),
    ];
    if changes.scope == Scope::Quick {
        text.push(
            "This is a quick run: smaller drives, shorter runs, fewer points. Its figures are \
             rougher than those of a full one."
                .to_owned(),
        );
    }
    Page { title: "Published results of drives beside the simulator's".into(), text, sections }
}

/// How many values were taken from their sources in which way.
fn origins(sections: &[Section]) -> String {
    let charts = || sections.iter().flat_map(|section| &section.charts);
    let count = |origin: Origin| {
        charts().flat_map(|chart| &chart.claims).filter(|claim| claim.origin == origin).count()
    };
    format!(
        "Of the published values, {} are printed in their source, {} are computed from such, {} \
         are from raw data, and {} were read off a picture; each table says which.",
        count(Origin::Printed),
        count(Origin::Computed),
        count(Origin::Data),
        count(Origin::Picture),
    )
}
