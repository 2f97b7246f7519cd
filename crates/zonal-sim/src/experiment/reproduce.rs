//! The page of all experiments.

use super::{Changes, Experiment, Name, Scope};
use crate::error::Result;
use crate::report::page::{Page, Section};

/// All experiments, each with its own config.
pub fn all(changes: &Changes) -> Result<Vec<Experiment>> {
    Name::ALL.into_iter().map(|name| Experiment::new(name, name.text(), changes)).collect()
}

/// The page of their sections.
pub fn page(sections: Vec<Section>, changes: &Changes) -> Page {
    let mut text = vec![
        "One model of flash below different translation layers, held against what was published: \
         the talk \"How Zoned Namespaces Improve SSD Lifetime, Throughput and Latency\" (Western \
         Digital, 2020), and the paper \"ZNS: Avoiding the Block Interface Tax for Flash-based \
         SSDs\" (USENIX ATC 2021)."
            .to_owned(),
        "Calibrated: constants of the model were fitted so that this figure comes out, so that it \
         agrees says little. Predicted: it comes out without having been aimed at. Predicted, for \
         this reading: the published figure does not say on which drive or by which workload it \
         was measured; ours is for the reading that is named, and other readings stand beside it. \
         Differences beyond 10 % (of percentages, 10 points) are marked."
            .to_owned(),
        "Not verified: the paper's steady-state figures (1010, 370 and 128 MiB/s) and its table of \
         drives are quoted from memory, the text was not at hand. Verified were the caption and \
         axes of its first figure (three drives of 2 TB raw media on the same hardware, the \
         capacity overwritten four times, throughput up to 1000 MiB/s), its abstract, and the \
         transcript of the talk. That transcript has slips of its own: once 70 % for 7 %, once \
         20 % for 28 %."
            .to_owned(),
        "Throughput is in 10^6 bytes a second. Over-provisioning is (raw − user) / user; effective \
         over-provisioning leaves out what is always free, open or bad. The same configs and seed \
         give this page again, byte for byte."
            .to_owned(),
    ];
    if changes.scope == Scope::Quick {
        text.push(
            "This is a quick run: smaller drives, shorter runs, fewer points. Its figures are \
             rougher than those of a full one."
                .to_owned(),
        );
    }
    Page { title: "Conventional SSDs against ZNS on the same flash".into(), text, sections }
}
